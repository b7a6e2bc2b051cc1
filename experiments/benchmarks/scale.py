"""Scale: a round of ten clients, with more and more registered clients.

FedAvg keeps no state for a client, only the indices of its rows in the pool.
All clients share one small pool. With clients_placement=device a round holds
the indices of all clients in memory, with host those of its cohort.
"""

from collections.abc import Iterator

import jax
import numpy as np

from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import (
  Case,
  Program,
  make_program,
  make_stages,
  memory_of,
  share_clients,
)
from experiments.benchmarks.timing import in_turn, ratios, spread
from fedjax_pfl.federated.cohort import gather, sample_cohorts
from fedjax_pfl.federated.host_offload import compiled_round

REGISTERED = (100, 1_000, 10_000, 100_000)
CASE = Case('convnet3', clients=10, steps=2, image_shape=(8, 8, 3))
LIMIT = 1.1


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the growth of time and memory from 100 to 100,000 clients."""
  programs = {
    number: make_program(CASE, share_clients(CASE, number), draw(number))
    for number in REGISTERED
  }
  for program in programs.values():
    program.run()
  runs = {number: with_draw(number, one) for number, one in programs.items()}
  seconds = in_turn(runs, 3 * repeats)
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
  memory = {number: fed_bytes(number) for number in REGISTERED}
  most = REGISTERED[-1]
  listed = (
    f'clients_placement=host: {memory[most] / 2**20:.1f} MiB of {most:,}; with '
    f'their rows on the device {programs[fewest].memory / 2**20:.1f} of '
    f'{fewest}, {programs[most].memory / 2**20:.1f} of {most:,}'
  )
  yield Bar(
    f'memory of a round, {words}',
    max(memory.values()) / memory[fewest],
    LIMIT,
    f'x {fewest}',
    'at most',
    listed,
  )


def draw(number: int) -> np.ndarray:
  """Return a cohort of ten, as a run samples it."""
  return np.asarray(
    sample_cohorts(jax.random.key(0), 0, 1, number, CASE.clients)[0]
  )


def with_draw(number: int, program: Program):
  """Return a run of the round that draws its cohort first."""

  def run():
    draw(number)
    program.run()

  return run


def fed_bytes(number: int) -> int:
  """Return the bytes of a round with clients_placement=host."""
  data, ids = share_clients(CASE, number), draw(number)
  algorithm = make_stages(CASE)[0].algorithm
  server = algorithm.init_server(jax.random.key(0))
  lowered = compiled_round.lower(
    *(algorithm, 1, data.index.shape, server),
    *(gather((), ids, data), np.arange(len(ids)), data.x, data.y),
    jax.random.key(0),
  )
  return memory_of(lowered.compile())
