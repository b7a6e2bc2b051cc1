"""The forecast of memory against the memory of the compiled programs."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from experiments import commandline
from experiments.benchmarks.bar import Bar
from fedjax_pfl.federated.chunking import shapes_of
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.build import Experiment, build_experiment

CONFIG = 'fedbabu_cifar10.py:quick'
CASES = (('simple_cnn', 1), ('simple_cnn', 2), ('convnet4', 1))  # chunk
LIMIT = 20  # percent


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the largest relative error of the forecast of a round."""
  del repeats  # bytes do not vary
  listed, off = [], []
  for model, chunk in CASES:
    settings = commandline.read_settings(f'{commandline.ROOT}/configs/{CONFIG}')
    settings['devices'] = 1  # of the cores that the bars of training divide
    # The bar is about a round: half the time would go into fine-tuning.
    settings['views'] = ('initial',)
    experiment = build_experiment(
      {**settings, 'model': model, 'clients_per_chunk': chunk}
    )
    ((_, forecast),) = memory_estimate.forecasts(experiment)
    expected = forecast.round - bytes_of_tests(experiment)
    used = bytes_of(experiment, chunk)
    off.append(100 * abs(expected / used - 1))
    listed.append(
      f'{model}, chunk {chunk}: {expected / 2**20:.1f} MiB for '
      f'{used / 2**20:.1f}'
    )
  yield Bar(
    'forecast of memory, off by',
    max(off),
    LIMIT,
    '%',
    'at most',
    '; '.join(listed),
  )


def bytes_of_tests(experiment: Experiment) -> int:
  """Return the bytes of the tests, which are no argument of a round."""
  test = experiment.test
  return sum(leaf.nbytes for leaf in (test.x, test.y, test.index, test.count))


def bytes_of(experiment: Experiment, chunk: int) -> int:
  """Return the bytes of the compiled round of a cohort."""
  data, key = shapes_of(experiment.train), jax.random.key(0)
  ids = jnp.arange(experiment.cohort_size)
  ((stage, *states),) = stage_shapes(experiment.stages, data)
  round_fn = make_round(stage.algorithm, clients_per_chunk=chunk)
  lowered = jax.jit(round_fn).lower(*states, ids, data, key)
  return memory_estimate.program_bytes(lowered.compile())
