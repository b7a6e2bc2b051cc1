"""Train many settings, each in a directory that is found by its content.

Finished runs are reused and stopped ones continue, so that a sweep that was
killed is repeated by the same command, and nothing is trained twice.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.results.runs.run import Run, read
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.settings import RESUMABLE, Settings, parse_config, to_config
from fedjax_pfl.settings.validate import program_key
from fedjax_pfl.training import (
  build,
  divergence,
  keys,
  many_runs,
  privacy_budget,
)

Log = Callable[[str], None]


def train_groups(
  groups: Sequence[Sequence[Settings]],
  folder: str | os.PathLike,
  log: Log,
) -> list[list[Path]]:
  """Train what is not finished; return the run directories [group][seed]."""
  every = [own for group in groups for own in group]
  paths = iter(train_all(every, folder, log))
  return [[next(paths) for _ in group] for group in groups]


def train_all(
  settings: Sequence[Settings],
  folder: str | os.PathLike,
  log: Log,
) -> list[Path]:
  """Train what is not finished; return the run directory of each setting.

  A training that diverges ends alone, without a result (`is_diverged`), and is
  not repeated. Runs that differ in seeds and traced numbers share a program;
  finished ones among them count for its shapes, so that a repeated sweep has
  the bits of an unbroken one, if no setting diverged. Settings that differ in
  fields which change no number are one run.

  A run that another process trains is left to it, and looked at again when all
  others are done; one that is still held then is refused.
  """
  data_of = keys.make_data_of(log)
  paths = [Path(folder) / _name(own, data_of(own)) for own in settings]
  groups: dict[str, dict[Path, Settings]] = {}
  known: dict[Path, Settings] = {}
  todo = set()
  for own, path in zip(settings, paths, strict=True):
    if sentence := divergence.sentence_of(path):
      log(
        f'{path.name} diverged before and is not trained again (without '
        f'{divergence.NAME} in its directory it is). {sentence}'
      )
      continue
    own = known.setdefault(path, _as_started(own, path))
    groups.setdefault(program_key(own), {})[path] = own
    if not run_dir.is_finished(path):
      todo.add(path)
  log(f'{len({*paths})} runs, {len(todo)} of them to be trained or continued.')
  log = functools.cache(log)  # each seed has the same lines
  for is_last in (False, True):
    held: list[Path] = []
    for runs in groups.values():
      if todo & {*runs}:
        leave = lambda at, to=held, own=(*runs,): to.append(own[at])
        many_runs.train_many(_build(runs, log), [*runs], log, leave)
    todo = {*held}
    if todo and not is_last:
      log(f'{len(todo)} runs were left to other processes; now again.')
  if todo:
    names = ', '.join(sorted(path.name for path in todo))
    raise bad_input(
      'runs',
      got=f'{names} in {folder}, which other processes still train',
      expected='every run to be finished; the others are',
      choices=['the same command, when those are done'],
    )
  if any(own.dp for own in settings):
    log(privacy_budget.spent_in(folder))
  return paths


def _build(runs: Mapping[Path, Settings], log: Log) -> list[build.Experiment]:
  """Return the experiments of one group, on the same images."""
  built: dict[int, build.Experiment] = {}  # by seed
  experiments = []
  for own in runs.values():
    # A budget and times are those of the steps of one setting.
    is_bound = own.dp or own.speeds
    if is_bound or own.seed not in built:
      new = build.build_experiment(own, log)
      first = next(iter(built.values()), new)
      built[own.seed] = many_runs.with_images_of(new, first)
    experiments.append(built[own.seed].with_settings(own))
  return experiments


def read_group(paths: Sequence[Path]) -> list[Run]:
  """Return the finished runs of a setting; [] if a seed of it diverged."""
  return [] if any(map(is_diverged, paths)) else [*map(read, paths)]


def is_diverged(path: str | os.PathLike) -> bool:
  """Return whether the training of this directory ended by divergence."""
  return bool(divergence.sentence_of(path))


def _name(settings: Settings, data: str) -> str:
  start = keys.run_key(settings.init_from) if settings.init_from else ''
  key = keys.result_key(settings, data, start)
  dataset = settings.data.dataset.replace('/', '_')  # emnist/byclass
  method = user_code.without_digest(settings.algorithm).rpartition(':')[2]
  return f'{method}_{dataset}_seed{settings.seed}_{key}'


def _as_started(settings: Settings, path: Path) -> Settings:
  """Return the settings; of a stopped run its own, but for what may change.

  And for code of the user's own, of which a run directory only has the name.
  """
  if not (path / identity.CONFIG).is_file():
    return settings
  given = to_config(settings)
  new = {name: given[name] for name in (*RESUMABLE, *user_code.FIELDS)}
  return parse_config({**run_dir.load_config(path)['config'], **new})
