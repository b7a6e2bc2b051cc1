"""Divergence: a loss, a client's state or the server becomes NaN or infinite.

It is looked for after every call of rounds. With on_divergence='stop' the run
stops with an error that names the round and the clients; with 'exclude' the
rounds of that call run once more without these clients
(exclusion.py). Without divergence, nothing else is computed.
In a sweep a run that diverged has a file with its error:

  RUN/diverged.json   the sentence with which the training ended

The numbers would be those of the same seed again. Without this file the same
command trains the run once more, from its last checkpoint.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.algorithm import Client, Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.federated import mesh_states
from fedjax_pfl.federated.sharding import is_divided
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.program import Call, Result
from fedjax_pfl.training.state import Training

NUM_SHOWN = 20  # clients in a message
NAME = 'diverged.json'


class Diverged(BadInput):
  """The error of a run with NaN or infinity, with its directory."""

  def __init__(self, message: str, workdir: pathlib.Path):
    super().__init__(message)
    self.workdir = workdir


class Divergence(NamedTuple):
  """The first number of a call that is NaN or infinite."""

  round: int | None  # of the call, from 0; None: unknown
  clients: tuple[int, ...]  # () where no client is the cause
  place: str


def find_divergence(call: Call, result: Result) -> Divergence | None:
  """Return where the rounds of a call diverged; None if all is finite."""
  cohorts = np.asarray(call.cohorts)  # [T, C]
  diverged = ~np.isfinite(result.metrics['loss'])  # [T, C]
  if diverged.any():
    first = int(np.argmax(diverged.any(1)))
    ids = as_ids(cohorts[first][diverged[first]])
    return Divergence(first, ids, 'in the loss of')
  ids = np.unique(cohorts)
  diverged = ~finite_rows(result.clients, ids)
  if diverged.any():
    return Divergence(None, as_ids(ids[diverged]), 'in the state of')
  if not is_finite(result.server):
    return Divergence(None, (), 'in the server state')
  return None


def divergence_error(
  training: Training, stage: Stage, stop: int, divergence: Divergence
) -> Diverged:
  """Return the error of a run that diverged in the rounds up to `stop`."""
  settings, done = training.experiment.settings, training.done
  name = settings.algorithm
  if stage.name != name:
    name = f'{name}, stage {stage.name}'
  number = divergence.round
  first = '' if number is None else f'round {done + number + 1}, '
  saved = training.run.last_checkpoint()
  exclude = "on_divergence='exclude', to continue without such clients"
  own = is_code(settings.model.name) or is_code(settings.training.loss)
  more = '; or code of your own: 0 / 0, tokens beyond the table' if own else ''
  error = bad_input(
    'training',
    got=f'NaN or infinity in rounds {done + 1} to {stop} of {name}: {first}'
    f'{divergence.place}{name_clients(divergence.clients)}; '
    f'seed {settings.seed}, {training.run.path}',
    expected='finite numbers',
    choices=[
      'a smaller learning_rate',
      'debug=True, to name the first bad step',
      *([exclude] if settings.system.on_divergence == 'stop' else []),
    ],
    cause='a learning rate that is too high for this model'
    f'{more}; metrics up to round {done} are stored, and '
    + (
      'there is no checkpoint yet'
      if saved is None
      else f'the last checkpoint is that of round {saved}'
    ),
  )
  return Diverged(str(error), training.run.path)


def name_clients(ids: tuple[int, ...]) -> str:
  """Return ' client 3', ' clients 3, 7', or '' for none; a long list is cut.

  >>> name_clients((3, 7))
  ' clients 3, 7'
  """
  shown = ', '.join(map(str, ids[:NUM_SHOWN]))
  more = f' and {len(ids) - NUM_SHOWN} more' if len(ids) > NUM_SHOWN else ''
  return f' client{"s" * (len(ids) > 1)} {shown}{more}' if ids else ''


def rows_on_host(clients: Client, ids: np.ndarray) -> list[np.ndarray]:
  """Return copies of the rows of clients on the host.

  Rounds write these in place; arrays on a device are never written.
  """
  return [leaf[ids] for leaf in _leaves_on_host(clients)]


def restore_rows(
  clients: Client, ids: np.ndarray, rows: Sequence[np.ndarray]
) -> None:
  """Write back what `rows_on_host` returned."""
  for leaf, own in zip(_leaves_on_host(clients), rows, strict=True):
    leaf[ids] = own


def _leaves_on_host(clients: Client) -> list[np.ndarray]:
  leaves = jax.tree.leaves(clients)
  return [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]


def finite_rows(clients: PyTree, ids: np.ndarray) -> np.ndarray:
  """Return whether all numbers of these rows are finite: [n] bool.

  In numpy: jax would compile programs for every shape. On an accelerator, only
  the rows themselves are copied. Rows that are divided over a mesh are looked
  at where they are, all of them.
  """
  floating = _floating(clients)
  if any(map(is_divided, floating)):
    return mesh_states.finite(floating)[ids]
  on_cpu = jax.default_backend() == 'cpu'
  finite = np.ones(len(ids), bool)
  for leaf in floating:
    rows = np.asarray(leaf)[ids] if on_cpu else np.asarray(leaf[ids])
    finite &= np.isfinite(rows).reshape(len(ids), -1).all(1)
  return finite


def is_finite(tree: PyTree) -> bool:
  return all(np.isfinite(np.asarray(leaf)).all() for leaf in _floating(tree))


def _floating(tree: PyTree) -> list[Array]:
  leaves = jax.tree.leaves(tree)
  return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def as_ids(ids: np.ndarray) -> tuple[int, ...]:
  return tuple(int(client) for client in ids)


def record(error: Diverged) -> None:
  """Write that this run diverged into its directory."""
  atomic_files.write_json(error.workdir / NAME, {'message': str(error)})


def sentence_of(workdir: str | os.PathLike) -> str:
  """Return the sentence of a run that diverged; '' for any other."""
  path = pathlib.Path(workdir) / NAME
  if not path.is_file() or run_dir.is_finished(workdir):
    return ''
  return str(run_dir.load_json(path).get('message', NAME))
