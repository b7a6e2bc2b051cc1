"""A finished run, opened for a question: its settings, data and last models.

Nothing is written.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.core.user_code import digest_of
from fedjax_pfl.results.runs.run import each_once
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings import Settings, flat_config, parse_config, to_config
from fedjax_pfl.training import build
from fedjax_pfl.training.best_models import chosen_states
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.state import state_shapes

Log = Callable[[str], None]
# Replaces fields of a config: those that were given on the command line.
Edit = Callable[[dict[str, Any]], None]


class OpenRun(NamedTuple):
  """A finished run, and its experiment, rebuilt."""

  label: str  # the method; with the path where methods repeat
  path: Path
  settings: Settings
  experiment: Experiment


def open_runs(
  workdirs: Sequence[AnyPath], log: Log, edit: Edit | None
) -> list[OpenRun]:
  """Return the runs, each once, with their experiments."""
  read = {path: read_run(path, log, edit) for path in each_once(workdirs)}
  methods, runs = [settings.algorithm for settings, _ in read.values()], []
  for path, (settings, data) in read.items():
    label = settings.algorithm
    if methods.count(label) > 1:
      label = f'{label} ({path})'
    rebuilt = rebuild(settings, data, log, edit)
    runs.append(OpenRun(label, path, settings, rebuilt))
  return runs


def read_run(
  workdir: AnyPath, log: Log, edit: Edit | None = None
) -> tuple[Settings, str]:
  """Return the settings of a run and the fingerprint of its data.

  Fields that were added to configs after the run get their defaults, and are
  logged. Code that the run names is not loaded: only what `edit` gives.
  """
  stored = run_dir.load_config(workdir)
  settings = parse_config(stored['config'])
  known = {*flatten(stored['config']), 'hp'}
  values = flat_config(settings).items()
  added = [f'{name}={value!r}' for name, value in values if name not in known]
  if added:
    log(f'{workdir} is older than these fields, which get their defaults: ')
    log(f'  {", ".join(added)}')
  # No question about models is one about the user's metrics.
  config = {**to_config(settings), 'metrics': ()}
  if edit:
    edit(config)
    _check_same_code(workdir, flat_config(settings), config)
  return parse_config(config), stored['data']


def _check_same_code(
  workdir: AnyPath, stored: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
  """Refuse a file of the user's code that is not as the run had it."""
  for field in ('algorithm', 'model', 'loss', 'partition'):
    digests = digest_of(stored[field]), digest_of(now[field])
    if all(digests) and digests[0] != digests[1]:
      raise bad_input(
        field,
        got=now[field],
        expected=f'{stored[field]}, with which {workdir} was trained',
        choices=['the file as it was'],
        cause='the file has changed since, or is another one',
      )


def rebuild(
  settings: Settings, data: str, log: Log, edit: Edit | None = None
) -> Experiment:
  """Return the experiment; its data must be those of the run, unless edited."""
  rebuilt = build.build_experiment(settings, log)
  if rebuilt.data_id != data and edit is None:
    raise bad_input(
      'data',
      got=rebuilt.data_id,
      expected=f'the fingerprint of the run, {data}',
      cause='other images, or a partition that has changed since; '
      '--config.<field>=<value> chooses other data on purpose',
    )
  if rebuilt.data_id != data:
    log('These data are not those of the run: fields of its config were given.')
  return rebuilt


def load_states(
  experiment: Experiment, workdir: AnyPath, log: Log
) -> tuple[Server, Client]:
  """Return server and clients as the run ends, from its last checkpoint.

  After the last round, or with select=validation after the chosen one. Only
  these two are read: other parts may differ between versions.
  """
  is_chosen = experiment.settings.evaluation.select == 'validation'
  parts = ('chosen',) if is_chosen else ('server', 'clients')

  def like(step):
    state = state_shapes(experiment, step)
    return {part: getattr(state, part) for part in parts}

  folder = Path(workdir) / 'checkpoints'
  restored = checkpoint.restore(folder, like, log, ignored='')
  if restored is None or restored[0] < experiment.rounds:
    saved = f'round {restored[0]} saved' if restored else 'no checkpoint'
    raise bad_input(
      'run',
      got=f'{workdir} with {saved}',
      expected=f'the checkpoint after its last round, {experiment.rounds}',
      cause='a run that is not finished, or a copy without checkpoints/',
    )
  found = [restored[1][part] for part in parts]
  return chosen_states(experiment, *found) if is_chosen else tuple(found)
