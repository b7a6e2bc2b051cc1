"""Ragged cohorts: padding steps of clients of different sizes in a chunk.

All clients of a chunk run as many steps as the largest. Steps are counted from
the metrics of the round, in the order of its chunks. The time is compared with
the same program on a cohort of equal sizes.
"""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import Case, make_program
from experiments.benchmarks.timing import in_turn, ratios, spread
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data import Synthetic, make_synthetic, partition, stack_clients

CASE = Case('convnet3', clients=20, batch=20, image_shape=(8, 8, 3))
BETA = 0.1
EACH = 200  # images, in the mean
LIMIT = 10  # percent
OTHER_CHUNKS = (2, 5, 10, 20)


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the share of wasted steps with the chunk that `auto` takes."""
  ragged = make_ragged()
  cohort = jnp.arange(CASE.clients)
  program = make_program(CASE, ragged, cohort)
  steps = np.asarray(program.run()[2]['num_steps'])
  even = make_program(CASE, make_even(ragged, steps), cohort)
  same = np.asarray(even.run()[2]['num_steps']).sum() / steps.sum()
  seconds = in_turn({'ragged': program.run, 'even': even.run}, repeats)
  clock = spread(ratios(seconds['ragged'], seconds['even'])).median * same
  others = ', '.join(f'{c}: {wasted(steps, c):.0f} %' for c in OTHER_CHUNKS)
  yield Bar(
    f'wasted steps, Dirichlet({BETA})',
    wasted(steps, program.clients_per_chunk),
    LIMIT,
    '%',
    'at most',
    f'{CASE.clients} clients of {steps.min()} to {steps.max()} steps, chunk '
    f'auto ({program.clients_per_chunk}); a step took {clock:.2f} x that of '
    'even clients; '
    f'by the count, in chunks of {others}',
  )


def wasted(steps: Sequence[int], chunk: int) -> float:
  """Return the share of padding steps, in percent.

  >>> wasted([1, 3, 2, 4], 2)
  16.666666666666664
  """
  ordered = np.sort(steps)
  ran = sum(
    part.size * part.max()
    for part in np.split(ordered, range(chunk, len(ordered), chunk))
  )
  return float(100 * (1 - ordered.sum() / max(ran, 1)))


def make_ragged() -> ClientData:
  """Return clients with the sizes of a Dirichlet draw."""
  size = EACH * CASE.clients
  spec = Synthetic(CASE.image_shape, CASE.num_classes, size)
  dataset = make_synthetic(spec)
  rows, _ = partition(
    'dirichlet',
    dataset.train.y,
    dataset.test.y,
    num_clients=CASE.clients,
    num_classes=CASE.num_classes,
    seed=0,
    dirichlet_beta=BETA,
  )
  return stack_clients(dataset.train, rows)


def make_even(ragged: ClientData, steps: np.ndarray) -> ClientData:
  """Return clients of one size that have as many steps in all, or nearly."""
  each = round(steps.mean()) * CASE.batch
  pool = np.arange(ragged.index.size) % len(ragged.y)
  return ragged._replace(
    index=jnp.asarray(pool.reshape(ragged.index.shape), jnp.int32),
    count=jnp.full_like(ragged.count, each),
  )
