"""The bars of the project: limits of what is measured, by name.

The function of a name takes the number of repeats and yields its bars. A bar
that cannot be measured on this machine gives the reason, and is neither met nor
missed. Batch sizes are those of the papers and benchmarks that use the model:
FedBABU 50, FedConcat 64, SuperFed 20, PFLlib 10, pfl-research 10.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax

from experiments import commandline
from experiments.benchmarks import ragged, scale, startup, yardstick
from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import Case
from experiments.benchmarks.measure import (
  NO_TORCH,
  Measured,
  has_torch,
  measure,
)
from experiments.benchmarks.timing import seconds_of, spread
from fedjax_pfl.federated.chunking import shapes_of
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.build import Experiment, build_experiment
from fedjax_pfl.training.loop import train, train_many

# Clients and steps: rounds of one to a few seconds on two cores.
TRAINING = {
  'convnet4': [Case('convnet4', 8, 4, 50), Case('convnet4', 8, 8, 10)],
  'mobilenet': [Case('mobilenet', 4, 2, 50)],
  'simple_cnn': [Case('simple_cnn', 8, 8, 64), Case('simple_cnn', 8, 20, 10)],
  'superfed_cnn': [Case('superfed_cnn', 8, 8, 20)],
  'vgg9': [Case('vgg9', 4, 2, 64)],
  'fedavg_cnn': [
    Case('fedavg_cnn', 8, 8, 10, momentum=0.0),
    Case('fedavg_cnn', 8, 4, 50, momentum=0.0),
  ],
  'pfl_cnn': [Case('pfl_cnn', 50, 5, 10, momentum=0.0)],
  'resnet18': [Case('resnet18', 2, 4, 50)],
  'resnet50': [Case('resnet50', 2, 2, 50)],
}
EVALUATED = ('convnet4', 'mobilenet', 'resnet18')
LIMITS = {'resnet18': 1.0, 'resnet50': 1.0}  # x PyTorch; 1.25 of all others
NAMES = {
  'convnet4': '4convNet',
  'mobilenet': 'MobileNet',
  'vgg9': 'VGG-9',
  'fedavg_cnn': 'plain FedAvgCNN',
  'pfl_cnn': 'plain CNN of pfl-research',
  'resnet18': 'ResNet-18',
  'resnet50': 'ResNet-50',
}
# FedBABU on CIFAR-100, in full size.
ON_GPU = Case(
  *('mobilenet', 100, 10), method='fedbabu', num_classes=100, epochs=5
)
ROUNDS = 320
SEEDS = 3


def standard_case(model: str) -> Case:
  """Return the first case of a model that its bars are about."""
  return TRAINING[model][0] if model in TRAINING else Case(model, 4, 2)


def training(model: str, repeats: int) -> Iterator[Bar]:
  """Yield local training with a model against PyTorch at its best."""
  for case in TRAINING[model]:
    yield _against_torch(case, 'training', repeats)
  if model == 'convnet4':
    case = standard_case(model)
    one = measure(case, 'training', repeats, has_torch(), False)
    share = one.share('product', one.flops)
    yield Bar(
      f'{NAMES[model]}, share of the product peak',
      100 * share.median,
      50,
      '%',
      'at least',
      f'{100 * share.low:.0f} to {100 * share.high:.0f} % in {repeats} '
      'repeats; FLOPs of the direct convolutions',
    )


def evaluation(repeats: int) -> Iterator[Bar]:
  """Yield fine-tuning and evaluation of all clients against PyTorch."""
  for model in EVALUATED:
    yield _against_torch(standard_case(model), 'evaluation', repeats)


def _against_torch(case: Case, work: str, repeats: int) -> Bar:
  words = '' if work == 'training' else ', fine-tuning evaluation'
  name = f'{NAMES.get(case.model, case.model)}, batch {case.batch}{words}'
  measured, how = None, NO_TORCH
  if has_torch():
    best = yardstick.at_our_best(case, work)
    one = measure(best, work, repeats, True, False)
    measured, how = one.against_torch().median, how_measured(one)
  limit = LIMITS.get(case.model, 1.25)
  return Bar(name, measured, limit, 'x PyTorch', 'at least', how)


def how_measured(one: Measured) -> str:
  """Return what ran, against what, the spread, and what did not take part."""
  ratio, images = one.against_torch(), one.rate(one.images).median
  words = (
    f'{yardstick.words(one.case)} against {one.torch_variant}: {ratio.low:.2f} '
    f'to {ratio.high:.2f} in {len(one.seconds["ours"])} repeats; '
    f'{images:,.0f} images/s'
  )
  left_out = yardstick.ranking(one.case).left_out
  return f'{words}; {left_out}' if left_out else words


def gpu(repeats: int, case: Case = ON_GPU) -> Iterator[Bar]:
  """Yield the time of a full run, and of a round against PyTorch, on a GPU."""
  whole, how = None, 'no GPU here'
  ratio, against = None, 'no GPU here'
  if jax.default_backend() == 'gpu':
    each, last = (
      spread(measure(case, work, repeats, False, False).seconds['ours']).median
      for work in ('training', 'evaluation')
    )
    whole = ROUNDS * each + last
    how = f'{ROUNDS} x {each:.3f} s + {last:.1f} s, compilation not counted'
    against = NO_TORCH
    if has_torch():
      tenth = case._replace(clients=case.clients // 10)
      found = measure(tenth, 'training', repeats, True, False).against_torch()
      ratio = found.median
      against = (
        f'{found.low:.2f} to {found.high:.2f}; torch_loop.py in place of '
        "the authors' code; it loads no data"
      )
  name = f'{ROUNDS} rounds and evaluation, f=1.0'
  yield Bar(name, whole, 180, 's', 'at most', how)
  name = 'a round of MobileNet, f=0.1'
  yield Bar(name, ratio, 10, 'x PyTorch', 'at least', against)


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
    expected, used = found.round - tests, _round_bytes(experiment, chunk)
    off.append(100 * abs(expected / used - 1))
    listed.append(
      f'{model}, chunk {chunk}: {expected / 2**20:.1f} MiB for '
      f'{used / 2**20:.1f}'
    )
  name = 'forecast of memory, off by'
  yield Bar(name, max(off), 20, '%', 'at most', '; '.join(listed))


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


def _experiment(config: str, **changes) -> Experiment:
  settings = commandline.read_settings(f'{commandline.ROOT}/configs/{config}')
  # One device, of the cores that the bars of training divide.
  return build_experiment({**settings, 'devices': 1, **changes})


def _round_bytes(experiment: Experiment, chunk: int) -> int:
  """Return the bytes of the compiled round of a cohort."""
  data = shapes_of(experiment.train)
  ids = jax.ShapeDtypeStruct((experiment.cohort_size,), 'int32')
  ((stage, *states),) = stage_shapes(experiment.stages, data)
  round_fn = make_round(stage.algorithm, clients_per_chunk=chunk)
  key = jax.eval_shape(jax.random.key, 0)
  lowered = jax.jit(round_fn).lower(*states, ids, data, key)
  return memory_estimate.program_bytes(lowered.compile())


BARS: dict[str, Callable[[int], Iterator[Bar]]] = {
  **{model: partial(training, model) for model in TRAINING},
  'evaluation': evaluation,
  'startup': startup.bars,
  'scale': scale.bars,
  'forecast': forecast,
  'ragged': ragged.bars,
  'seeds': seeds,
  'gpu': gpu,
}
