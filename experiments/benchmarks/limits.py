"""The bars of what grows: clients, memory, padding, seeds.

scale     a round of ten clients, with more and more registered clients
forecast  the forecast of a round's memory against the compiled round
ragged    padding steps of clients of different sizes in a chunk
seeds     several seeds with one compiled program against one by one
"""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import numpy as np

from experiments import commandline
from experiments.accelerators.programs import make_programs
from experiments.benchmarks.cases import Case
from experiments.benchmarks.programs import (
  make_program,
  make_stages,
  share_clients,
)
from experiments.benchmarks.screen import Bar
from experiments.benchmarks.timing import in_turn, ratios, seconds_of, spread
from fedjax_pfl.data import partition
from fedjax_pfl.federated.chunking import chunk_limit, overhead
from fedjax_pfl.federated.cohort import gather, sample_cohorts
from fedjax_pfl.federated.host_offload import compiled_round
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.build import Experiment, build_experiment
from fedjax_pfl.training.loop import train, train_many

REGISTERED = (100, 1_000, 10_000, 100_000)
SMALL = Case('convnet3', clients=10, steps=2, image_shape=(8, 8, 3))
SEEDS = 3
MIB = 2**20


def scale(repeats: int) -> Iterator[Bar]:
  """Yield the growth of time and memory from 100 to 100,000 clients.

  FedAvg keeps no state for a client, only the indices of its rows in the pool,
  which all clients share. With clients_placement=device a round holds the
  indices of all clients in memory, with host those of its cohort.
  """
  fewest, *_, most = REGISTERED
  programs = {
    number: make_program(SMALL, share_clients(SMALL, number), _draw(number))
    for number in REGISTERED
  }

  def draw_and_run(number):
    _draw(number)
    programs[number].run()

  for program in programs.values():
    program.run()
  runs = {number: partial(draw_and_run, number) for number in REGISTERED}
  seconds = in_turn(runs, 3 * repeats)
  grown = max(
    spread(ratios(own, seconds[fewest])).median for own in seconds.values()
  )
  listed = ', '.join(
    f'{spread(own).median:.3f} s of {number:,}'
    for number, own in seconds.items()
  )
  more, unit = f'a round, {most:,} clients', f'x {fewest}'
  how = f'the worst of {listed}'
  yield Bar(f'time of {more}', grown, 1.1, unit, 'at most', how)
  on_host = {number: _bytes_on_host(number) for number in REGISTERED}
  few, many = programs[fewest].memory, programs[most].memory
  how = (
    f'clients_placement=host: {on_host[most] / MIB:.1f} MiB of {most:,}; with '
    f'their rows on the device {few / MIB:.1f} of {fewest}, '
    f'{many / MIB:.1f} of {most:,}'
  )
  grown = max(on_host.values()) / on_host[fewest]
  yield Bar(f'memory of {more}', grown, 1.1, unit, 'at most', how)


def _draw(number: int) -> np.ndarray:
  """Return a cohort of ten, as a run samples it."""
  cohorts = sample_cohorts(jax.random.key(0), 0, 1, number, SMALL.clients)
  return np.asarray(cohorts[0])


def _bytes_on_host(number: int) -> int:
  """Return the bytes of a round with clients_placement=host."""
  data, ids = share_clients(SMALL, number), _draw(number)
  algorithm, key = make_stages(SMALL)[0].algorithm, jax.random.key(0)
  server, rows = algorithm.init_server(key), gather((), ids, data)
  lowered = compiled_round.lower(
    *(algorithm, 1, data.index.shape, server, *rows, np.arange(len(ids))),
    *(data.x, data.y, key),
  )
  return memory_estimate.program_bytes(lowered.compile())


def forecast(repeats: int) -> Iterator[Bar]:
  """Yield the largest relative error of the forecast of a round's memory."""
  del repeats  # bytes do not vary
  listed, off = [], []
  for model, chunk in (('simple_cnn', 1), ('simple_cnn', 2), ('convnet4', 1)):
    experiment = _experiment(
      'fedbabu_cifar10.py:quick',
      model=model,
      clients_per_chunk=chunk,
      # The bar is about a round: half the time would go into fine-tuning.
      views=('initial',),
    )
    ((_, found),) = memory_estimate.forecasts(experiment)
    # The tests are no argument of a round.
    tests = sum(leaf.nbytes for leaf in jax.tree.leaves(experiment.test))
    program = next(make_programs(experiment, jax.devices()[:1]))
    lowered = jax.jit(program.function).lower(*program.arguments.values())
    used = memory_estimate.program_bytes(lowered.compile())
    expected = found.round - tests
    off.append(100 * abs(expected / used - 1))
    listed.append(
      f'{model}, chunk {chunk}: {expected / MIB:.1f} MiB for {used / MIB:.1f}'
    )
  name = 'forecast of memory, off by'
  yield Bar(name, max(off), 20, '%', 'at most', '; '.join(listed))


def _experiment(config: str, **changes) -> Experiment:
  settings = commandline.read_settings(f'{commandline.ROOT}/configs/{config}')
  # One device, of the cores that the bars of training divide.
  return build_experiment({**settings, 'devices': 1, **changes})


def ragged(repeats: int) -> Iterator[Bar]:
  """Yield the share of steps that `auto` wastes on clients of unlike sizes.

  All clients of a chunk run as many steps as the largest.
  """
  del repeats  # steps are counted
  clients, batch, classes, beta = 20, 20, 10, 0.1
  labels = np.arange(200 * clients) % classes  # 200 images in the mean
  sizes = {'num_clients': clients, 'num_classes': classes, 'seed': 0}
  rows, _ = partition('dirichlet', labels, labels, dirichlet_beta=beta, **sizes)
  counts = np.array([len(own) for own in rows])
  chunk = chunk_limit('auto', counts, clients, batch)
  steps = -(-counts // batch)
  wasted, of_ten = (100 * overhead(counts, size, batch) for size in (chunk, 10))
  how = (
    f'{clients} clients of {steps.min()} to {steps.max()} steps, chunk auto '
    f'({chunk}); in chunks of ten {of_ten:.0f} %'
  )
  name = f'wasted steps, Dirichlet({beta})'
  yield Bar(name, wasted, 10, '%', 'at most', how)


def seeds(repeats: int) -> Iterator[Bar]:
  """Yield the time of all seeds together relative to one after another."""
  del repeats  # most of it is compilation
  config = 'digits.py:fedbabu,quick'
  experiments = [_experiment(config, seed=seed) for seed in range(SEEDS)]
  quiet = contextlib.redirect_stdout(io.StringIO())  # the log of the runs
  with quiet, tempfile.TemporaryDirectory() as folder:
    paths = [str(Path(folder) / str(n)) for n in range(2 * SEEDS + 1)]
    train(experiments[0], paths.pop())  # compiles what both share
    alone = sum(
      seconds_of(partial(train, *one))
      for one in zip(experiments, paths[:SEEDS], strict=True)
    )
    together = seconds_of(lambda: train_many(experiments, paths[SEEDS:]))
  yield Bar(
    f'{SEEDS} seeds in one program',
    together / alone,
    1.0,
    'x alone',
    'at most' if jax.default_backend() == 'cpu' else 'below',
    f'{together:.1f} s against {alone:.1f} s, configs/{config}, with '
    'compilation and evaluation',
  )
