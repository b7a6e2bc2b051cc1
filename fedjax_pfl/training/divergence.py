"""Divergence: a loss, a client's state or the server becomes NaN or infinite.

The rounds report it, in booleans [T, C] (around/failures.py). With
on_divergence='stop' the run stops with an error that names the round and the
clients; with 'exclude' such clients count as if they had not been drawn.
In a sweep a run that diverged has a file with its error:

  RUN/diverged.json   the sentence with which the training ended

Without this file the same command trains it once more, from its checkpoint.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.algorithm import FINITE, SERVER_FINITE, Metrics, Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.state import Training

NUM_SHOWN = 20  # clients in a message
NAME = 'diverged.json'


class Diverged(BadInput):
  """The error of a run with NaN or infinity, with its directory."""

  def __init__(self, message: str, workdir: pathlib.Path):
    super().__init__(message)
    self.workdir = workdir


def check_finite(
  training: Training,
  stage: Stage,
  stop: int,
  cohorts: np.ndarray,
  metrics: Metrics,
) -> None:
  """Raise Diverged where the rounds of a call up to `stop` diverged.

  Clients that diverge do no harm where the rounds exclude them, unless none of
  those who trained is left.
  """
  experiment = training.experiment
  harmful = ~metrics[FINITE]  # [T, C]
  excludes = experiment.settings.failures.on_divergence == 'exclude'
  excludes = excludes and not stage.full_participation
  if experiment.privacy.is_private or excludes:
    is_left = metrics[FINITE] & (metrics['num_steps'] > 0)
    harmful &= ~is_left.any(1, keepdims=True)
  is_bad = harmful.any(1) | ~metrics[SERVER_FINITE]  # [T]
  if not is_bad.any():
    return
  number = int(np.argmax(is_bad))
  in_loss = harmful[number] & ~np.isfinite(metrics['loss'][number])
  clients, where = harmful[number], 'in the state or the upload of'
  if in_loss.any():
    clients, where = in_loss, 'in the loss of'
  elif not clients.any():
    where = 'in the server state'
  where += name_clients(cohorts[number][clients].tolist())
  raise _diverged(training, stage, stop, training.done + number + 1, where)


def _diverged(
  training: Training, stage: Stage, stop: int, number: int, where: str
) -> Diverged:
  settings, done = training.experiment.settings, training.done
  name = settings.algorithm
  if stage.name != name:
    name = f'{name}, stage {stage.name}'
  ways = ['a smaller learning_rate', 'debug=True, to name the first bad step']
  if settings.failures.on_divergence == 'stop':
    ways += ["on_divergence='exclude', to continue without such clients"]
  is_own = is_code(settings.model.name) or is_code(settings.data.loss)
  more = '; or code of your own: 0 / 0, tokens beyond the table' * is_own
  more += '; or a server that believes attackers' * bool(settings.attack)
  saved, last = training.run.last_checkpoint(), 'there is no checkpoint yet'
  if saved is not None:
    last = f'the last checkpoint is that of round {saved}'
  error = bad_input(
    'training',
    got=f'NaN or infinity in rounds {done + 1} to {stop} of {name}: '
    f'round {number}, {where}; seed {settings.seed}, {training.run.path}',
    expected='finite numbers',
    choices=ways,
    cause=f'a learning rate that is too high for this model{more}; metrics up '
    f'to round {done} are stored, and {last}',
  )
  return Diverged(str(error), training.run.path)


def name_clients(ids: Sequence[int]) -> str:
  """Return ' client 3', ' clients 3, 7', or '' for none; a long list is cut."""
  shown = ', '.join(map(str, ids[:NUM_SHOWN]))
  more = ', ..' if len(ids) > NUM_SHOWN else ''
  return f' client{"s" * (len(ids) > 1)} {shown}{more}' if ids else ''


def excluded_clients(
  metrics: Metrics, cohorts: np.ndarray, done: int, is_private: bool
) -> dict[str, Any]:
  """Return and log who was excluded; of a private run how many, if any."""
  if is_private:
    number = int((~metrics[FINITE]).sum())
    if number:
      progress.log(
        f'Up to round {done + len(cohorts)}: {number} changes with NaN or '
        'infinity count as 0.'
      )
    return {'excluded': number} if number else {}
  pairs = []
  for row, finite in enumerate(metrics[FINITE]):
    if ids := cohorts[row][~finite].tolist():
      number = done + row + 1
      pairs += [[number, client] for client in ids]
      progress.log(
        f'Round {number}: excluded{name_clients(ids)}, where the '
        'loss, the state or the upload is NaN or infinite.'
      )
  numbers = {'excluded': len(pairs)}
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers


def record(error: Diverged) -> None:
  """Write that this run diverged into its directory."""
  atomic_files.write_json(error.workdir / NAME, {'message': str(error)})


def sentence_of(workdir: str | os.PathLike) -> str:
  """Return the sentence of a run that diverged; '' for any other."""
  path = pathlib.Path(workdir) / NAME
  if not path.is_file() or run_dir.is_finished(workdir):
    return ''
  return str(run_dir.load_json(path).get('message', NAME))
