"""Train many settings, each in a directory that is found by its content.

Finished runs are reused and stopped ones continue, so that a sweep that was
killed is repeated by the same command, and nothing is trained twice.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fedjax_pfl.core import user_code
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.settings import Settings, parse_config, to_config
from fedjax_pfl.training import divergence, keys
from fedjax_pfl.training.build import (
  Experiment,
  build_experiment,
  with_numbers_of,
)
from fedjax_pfl.training.build_data import DataOf, make_data_of
from fedjax_pfl.training.loop import train_many
from fedjax_pfl.training.program import static_key

Log = Callable[[str], None]


def train_all(
  settings: Sequence[Settings], folder: str | os.PathLike, log: Log
) -> list[Path]:
  """Train what is not finished; return the run directory of each setting.

  A training that diverges ends alone, without a result (`is_diverged`).
  """
  paths = find_paths(settings, Path(folder), make_data_of(log))
  runs = {
    path: _as_started(own, path)
    for own, path in zip(settings, paths, strict=True)
    if not _diverged_before(path, log)
  }
  todo = {path for path in runs if not run_dir.is_finished(path)}
  log(f'{len({*paths})} runs, {len(todo)} of them to be trained or continued.')
  log = _once(log)
  for group in _groups(runs):
    if todo & {*group}:
      _train_group({path: runs[path] for path in group}, log)
  return paths


def _train_group(runs: dict[Path, Settings], log: Log) -> None:
  """Train runs that differ in seeds and traced numbers, on the same images.

  Finished ones among them count for the shapes, so that a repeated sweep has
  the bits of an unbroken one.
  """
  built: dict[int, Experiment] = {}  # by seed
  for own in runs.values():
    if own.seed not in built:
      built[own.seed] = build_experiment(own, log)
  experiments = [with_numbers_of(built[own.seed], own) for own in runs.values()]
  train_many(experiments, list(runs), log)


def _once(log: Log) -> Log:
  """Return a log that drops lines that it has had: each seed has the same."""
  known = set()

  def once(text):
    if text not in known:
      log(text)
    known.add(text)

  return once


def find_paths(
  settings: Sequence[Settings], folder: Path, data_of: DataOf
) -> list[Path]:
  """Return the directory of every setting; equal ones have the same."""
  return [folder / _name(own, data_of(own)) for own in settings]


def is_diverged(path: str | os.PathLike) -> bool:
  """Return whether the training of this directory ended by divergence."""
  return bool(divergence.sentence_of(path))


def _diverged_before(path: Path, log: Log) -> bool:
  """Return whether the training diverged; log that it is not repeated."""
  if sentence := divergence.sentence_of(path):
    log(
      f'{path.name} diverged before and is not trained again (without '
      f'{divergence.NAME} in its directory it is). {sentence}'
    )
  return bool(sentence)


def _name(settings: Settings, data: str) -> str:
  start = keys.run_key(settings.init_from) if settings.init_from else ''
  key = keys.result_key(settings, data, start)
  dataset = settings.data.dataset.replace('/', '_')  # emnist/byclass
  method = user_code.short_name(settings.algorithm)
  return f'{method}_{dataset}_seed{settings.seed}_{key}'


def _as_started(settings: Settings, path: Path) -> Settings:
  """Return the settings; of a stopped run its own.

  They may differ in fields that do not change the result. Code of the user's
  own is that of the settings: a run directory only has its name.
  """
  if not (path / identity.CONFIG).is_file():
    return settings
  given = to_config(settings)
  code = {field: given[field] for field in user_code.FIELDS}
  return parse_config({**run_dir.load_config(path)['config'], **code})


def _groups(runs: dict[Path, Settings]) -> list[list[Path]]:
  """Return the runs that differ in seeds and traced numbers together."""
  groups: dict[str, list[Path]] = {}
  for path, own in runs.items():
    groups.setdefault(static_key(own), []).append(path)
  return list(groups.values())
