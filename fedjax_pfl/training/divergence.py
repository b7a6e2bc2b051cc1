"""What happens when a run loses its numbers: NaN or infinity.

After every compiled call the losses of its clients, what they keep, and the
server are looked at. With on_divergence='stop' the run ends in a sentence. With
'exclude' the rounds of that call are played once more, one by one, without
the clients that are to blame: as if these had not been drawn, whatever the
method makes of uploads. Where nobody diverges, nothing else is computed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server, Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.rounds import Round
from fedjax_pfl.training.multi_seed import Call, Result, SeedRun


class Lost(NamedTuple):
  """Where numbers were lost first, within a call."""

  round: int | None  # of the call, from 0; None: not known
  clients: tuple[int, ...]  # () where no client is to blame
  what: str


def find_lost(call: Call, result: Result, metrics: Metrics) -> Lost | None:
  """Return where a call lost its numbers; None if all are finite."""
  cohorts = np.asarray(call[2])  # [T, C]
  server, clients, _ = result
  bad = ~np.isfinite(metrics['loss'])  # [T, C]
  if bad.any():
    first = int(np.argmax(bad.any(1)))
    return Lost(first, ids_of(cohorts[first][bad[first]]), 'in the loss of')
  ids = np.unique(cohorts)
  bad = ~_finite_rows(clients, ids)
  if bad.any():
    return Lost(None, ids_of(ids[bad]), 'in what is kept of')
  if not _is_finite(server):
    return Lost(None, (), 'on the server alone')
  return None


def play_without(
  rounds_fn: Round,
  call: Call,
  stage: Stage,
  refuse_fn: Callable[[Lost], BadInput],
) -> tuple[Result, Metrics, np.ndarray]:
  """Return what a call gives without the clients that diverge in it.

  With the metrics [T, C], in which these have zeros, and who took part:
  [T, C]. refuse_fn(lost) is raised where nobody is left, or no client is to
  blame.
  """
  server, clients, cohorts, data, key = call
  metrics, took_part = [], []
  for number, cohort in enumerate(np.asarray(cohorts)):
    stays, before = np.ones(cohort.shape, bool), keep_rows(clients, cohort)
    while True:
      put_back(clients, cohort, before)
      if not stays.any() or (stage.full_participation and not stays.all()):
        lost = ids_of(cohort[~stays])
        raise refuse_fn(Lost(number, lost, 'in the training of'))
      ids = cohort[stays]
      result = rounds_fn(server, clients, jnp.asarray(ids)[None], data, key)
      one = jax.tree.map(np.asarray, result[2])
      bad = ~np.isfinite(one['loss'][0]) | ~_finite_rows(result[1], ids)
      if not bad.any():
        if _is_finite(result[0]):
          break
        put_back(clients, cohort, before)
        bad = ~_finite_uploads(stage.algorithm, server, clients, ids, data, key)
      if not bad.any():
        raise refuse_fn(Lost(number, (), 'on the server alone'))
      stays[np.flatnonzero(stays)[bad]] = False
    server, clients, _ = result
    metrics.append(jax.tree.map(partial(_spread, stays), one))
    took_part.append(stays)
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *metrics)
  return (server, clients, stacked), stacked, np.stack(took_part)


def refusal(seed_run: SeedRun, stage: Stage, stop: int, lost: Lost) -> BadInput:
  """Return the sentence with which a run ends that lost its numbers."""
  settings = seed_run.experiment.settings
  name = settings.algorithm
  if stage.name != name:
    name = f'{name}, stage {stage.name}'
  first = (
    '' if lost.round is None else f'round {seed_run.done + lost.round + 1}, '
  )
  rounds = f'rounds {seed_run.done + 1} to {stop} of {name}'
  saved = seed_run.run.last_checkpoint()
  exclude = "on_divergence='exclude' goes on without such clients"
  return bad_input(
    'training',
    got=f'NaN or infinity in {rounds}: {first}{lost.what}'
    f'{told_clients(lost.clients)}; seed {settings.seed}, '
    f'{seed_run.run.path}',
    expected='finite numbers',
    choices=[
      'a smaller learning_rate',
      'debug=True names the first bad step',
      *([exclude] if settings.system.on_divergence == 'stop' else []),
    ],
    cause='a learning rate that is too high for this model; metrics up to '
    f'round {seed_run.done} are kept, and the last good checkpoint is '
    + ('not there yet' if saved is None else f'that of round {saved}'),
  )


def told_clients(clients: tuple[int, ...]) -> str:
  """Return ' client 3', ' clients 3, 7', or '' for none; many are cut short."""
  shown = ', '.join(map(str, clients[:20]))
  more = f' and {len(clients) - 20} more' if len(clients) > 20 else ''
  return f' client{"s" * (len(clients) > 1)} {shown}{more}' if clients else ''


def keep_rows(clients: Client, ids: np.ndarray) -> list[np.ndarray]:
  """Return copies of the rows that rounds write in place: on the host alone."""
  return [leaf[ids] for leaf in _on_host(clients)]


def put_back(
  clients: Client, ids: np.ndarray, rows: Sequence[np.ndarray]
) -> None:
  """Write rows that were kept where they were."""
  for leaf, own in zip(_on_host(clients), rows, strict=True):
    leaf[ids] = own


def _on_host(clients: Client) -> list[np.ndarray]:
  leaves = jax.tree.leaves(clients)
  return [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]


def _finite_uploads(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  ids: np.ndarray,
  data: ClientData,
  key: Key,
) -> np.ndarray:
  """Return which clients send finite numbers: [C] bool.

  Rare enough to train them once more for it.
  """
  rows = gather(clients, ids, data)
  sent = _uploads(algorithm, server, rows, data.x, data.y, key)
  return _finite_rows(sent, np.arange(len(ids)))


@partial(jax.jit, static_argnums=0)
def _uploads(algorithm, server, rows, x, y, key):
  update = client_update(algorithm, server, ClientData(x, y, None, None), key)
  return lax.map(lambda one: update(one)[1], rows)


def _finite_rows(clients: PyTree, ids: np.ndarray) -> np.ndarray:
  """Return whether all numbers of these rows are finite: [n] bool.

  In numpy: jax would compile programs for every shape. Beside a CPU, only the
  rows themselves are copied.
  """
  on_cpu = jax.default_backend() == 'cpu'
  finite = np.ones(len(ids), bool)
  for leaf in _floating(clients):
    rows = np.asarray(leaf)[ids] if on_cpu else np.asarray(leaf[ids])
    finite &= np.isfinite(rows).reshape(len(ids), -1).all(1)
  return finite


def _is_finite(tree: PyTree) -> bool:
  return all(np.isfinite(np.asarray(leaf)).all() for leaf in _floating(tree))


def _floating(tree: PyTree) -> list[Array]:
  leaves = jax.tree.leaves(tree)
  return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _spread(stays: np.ndarray, values: np.ndarray) -> np.ndarray:
  """Return the values [1, C', ...] in the places that stay; others are 0."""
  spread = np.zeros((len(stays), *values.shape[2:]), values.dtype)
  spread[stays] = values[0]
  return spread


def ids_of(ids: np.ndarray) -> tuple[int, ...]:
  return tuple(int(client) for client in ids)
