"""A finished run, opened for a question: its settings, data and last models.

Nothing is written.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.example_losses import check_classes
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.core.user_code import digest_of
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings import (
  RESUMABLE,
  Settings,
  flat_config,
  parse_config,
  to_config,
)
from fedjax_pfl.training import build
from fedjax_pfl.training.best_models import chosen_states
from fedjax_pfl.training.build import Experiment, placed_as_started
from fedjax_pfl.training.state import random_streams, state_shapes

Log = Callable[[str], None]
# Replaces fields of a config: those that were given on the command line.
Edit = Callable[[dict[str, Any]], None]


def read_run(
  workdir: AnyPath, log: Log, edit: Edit | None = None, moved: bool = False
) -> tuple[Settings, str]:
  """Return the settings of a run and the fingerprint of its data.

  Fields that were added to configs after the run get their defaults, and are
  logged. Code that the run names is not loaded: only what `edit` gives. If the
  run has `moved`, it gives where things are, and no other setting.
  """
  stored = run_dir.load_config(workdir)
  settings = parse_config(stored['config'])
  check_classes(settings.data.loss, 'exports and predictions are of these')
  known = {*flatten(stored['config']), 'hp'}
  values = flat_config(settings).items()
  added = [f'{name}={value!r}' for name, value in values if name not in known]
  if added:
    log(f'{workdir} is older than these fields, which get their defaults: ')
    log(f'  {", ".join(added)}')
  # No question about models is one about metrics or trackers of the user's.
  config = {**to_config(settings), 'metrics': (), 'tracker': 'none'}
  before = flat_config(parse_config(config))
  if edit:
    edit(config)
  now = parse_config(config)
  for name, value in flat_config(now).items():
    digests = digest_of(before[name]), digest_of(value)
    is_other = moved and name not in RESUMABLE and value != before[name]
    if all(digests):
      is_other = digests[0] != digests[1]
    if is_other:
      raise bad_input(
        name,
        got=value,
        expected=f'{before[name]}, with which {workdir} was trained',
        choices=['the file as it was'] if all(digests) else ['data_dir=..'],
      )
  return now, stored['data']


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
  experiment = placed_as_started(experiment, workdir, log)
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
    )
  number, state = restored
  if is_chosen:
    return chosen_states(experiment, state['chosen'])
  server, clients = state['server'], state['clients']
  if experiment.placement.on_disk:
    placement = experiment.placement.of_run(Path(workdir))
    key = random_streams(experiment.settings.seed)['states']
    files = placement.resumed(experiment.stages[0], experiment.train, key)
    files.show(number)
    clients = files.clients
  return server, clients
