"""Bars against PyTorch at its best: which models, at which batches.

The batch sizes are those of the papers and benchmarks that use the model:
FedBABU 50, FedConcat 64, SuperFed 20, PFLlib 10, pfl-research 10.
"""

from collections.abc import Callable, Iterator
from functools import partial

from experiments.benchmarks import our_best, yardstick
from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import Case
from experiments.benchmarks.measure import (
  NO_TORCH,
  Measured,
  has_torch,
  measure,
)

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
LIMITS = {'resnet18': 1.0, 'resnet50': 1.0}
LIMIT = 1.25  # of all others
NAMES = {
  'convnet4': '4convNet',
  'mobilenet': 'MobileNet',
  'vgg9': 'VGG-9',
  'fedavg_cnn': 'plain FedAvgCNN',
  'pfl_cnn': 'plain CNN of pfl-research',
  'resnet18': 'ResNet-18',
  'resnet50': 'ResNet-50',
}


def standard_case(model: str) -> Case:
  """Return the first case of a model that its bars are about."""
  return TRAINING[model][0] if model in TRAINING else Case(model, 4, 2)


def training_of(model: str) -> Callable[[int], Iterator[Bar]]:
  """Return the function of the bars of local training with a model."""
  return partial(_training, model)


def _training(model: str, repeats: int) -> Iterator[Bar]:
  for case in TRAINING[model]:
    yield _bar(case, 'training', repeats)
  if model == 'convnet4':
    yield _share_of_product(standard_case(model), repeats)


def evaluation(repeats: int) -> Iterator[Bar]:
  """Yield fine-tuning and evaluation of all clients against PyTorch."""
  for model in EVALUATED:
    yield _bar(standard_case(model), 'evaluation', repeats)


def _bar(case: Case, work: str, repeats: int) -> Bar:
  words = '' if work == 'training' else ', fine-tuning evaluation'
  name = f'{NAMES.get(case.model, case.model)}, batch {case.batch}{words}'
  measured, how = None, NO_TORCH
  if has_torch():
    best = our_best.at_our_best(case, work)
    one = measure(best, work, repeats, True, False)
    measured, how = one.against_torch().median, how_measured(one)
  limit = LIMITS.get(case.model, LIMIT)
  return Bar(name, measured, limit, 'x PyTorch', 'at least', how)


def how_measured(one: Measured) -> str:
  """Return what ran, against what, the spread, and what did not take part."""
  ratio, images = one.against_torch(), one.rate(one.images).median
  words = (
    f'{our_best.words(one.case)} against {one.torch_variant}: {ratio.low:.2f} '
    f'to {ratio.high:.2f} in {len(one.seconds["ours"])} repeats; '
    f'{images:,.0f} images/s'
  )
  left_out = yardstick.ranking(one.case).left_out
  return f'{words}; {left_out}' if left_out else words


def _share_of_product(case: Case, repeats: int) -> Bar:
  """Return the FLOPs of direct convolutions against a large product's."""
  one = measure(case, 'training', repeats, has_torch(), False)
  share = one.share('product', one.flops)
  return Bar(
    f'{NAMES[case.model]}, share of the product peak',
    100 * share.median,
    50,
    '%',
    'at least',
    f'{100 * share.low:.0f} to {100 * share.high:.0f} % in {repeats} repeats; '
    'FLOPs of the direct convolutions',
  )
