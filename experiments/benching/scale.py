"""Scale: a round of ten clients, with ever more clients registered.

FedAvg keeps nothing for a client; what it has to say of each is which rows of
the pool are its own. All clients share one small pool.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benching.bar import Bar
from experiments.benching.cases import Case, make_clients, make_program
from experiments.benching.timing import in_turn, ratios, spread
from fedjax_pfl.cohorts import sample_cohort
from fedjax_pfl.types import ClientData

REGISTERED = (100, 1_000, 10_000, 100_000)
CASE = Case('convnet3', clients=10, steps=2, image_shape=(8, 8, 3))
LIMIT = 1.1


def bars(repeats: int) -> Iterator[Bar]:
  """Yield how time and memory grow from the fewest clients to the most."""
  programs = {number: make_round_of(number) for number in REGISTERED}
  for program in programs.values():
    program.run()
  seconds = in_turn({n: one.run for n, one in programs.items()}, 3 * repeats)
  fewest = REGISTERED[0]
  grows = {
    number: spread(ratios(seconds[number], seconds[fewest])).median
    for number in REGISTERED
  }
  worst = max(grows, key=grows.get)
  listed = ', '.join(
    f'{spread(seconds[number]).median:.3f} s of {number:,}'
    for number in REGISTERED
  )
  words = f'{REGISTERED[-1]:,} clients'
  yield Bar(
    f'time of a round, {words}',
    grows[worst],
    LIMIT,
    f'x {fewest}',
    'at most',
    f'the worst of {listed}',
  )
  memory = {number: one.memory for number, one in programs.items()}
  listed = ', '.join(
    f'{memory[number] / 2**20:,.0f} MiB of {number:,}' for number in REGISTERED
  )
  yield Bar(
    f'memory of a round, {words}',
    max(memory.values()) / memory[fewest],
    LIMIT,
    f'x {fewest}',
    'at most',
    listed,
  )


def make_round_of(number: int):
  """Return a compiled round of ten among so many clients."""
  data = registered(number)
  cohort = sample_cohort(jax.random.key(0), number, CASE.clients)
  return make_program(CASE, data, cohort)


def registered(number: int) -> ClientData:
  """Return clients that take their rows from the pool of a few."""
  few = make_clients(CASE)
  owners = np.arange(number) % CASE.clients
  return few._replace(
    index=jnp.asarray(np.asarray(few.index)[owners]),
    count=jnp.asarray(np.asarray(few.count)[owners]),
  )
