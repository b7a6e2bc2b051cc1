"""The bars of the project, each measured by one function.

A function takes the number of repeats and yields its bars. A bar that cannot be
measured on this machine gives the reason, and is neither met nor missed.
"""

from collections.abc import Callable, Iterator

from experiments.benchmarks import forecast, gpu, ragged, scale, seeds, startup
from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import Case
from experiments.benchmarks.measure import NO_TORCH, has_torch, measure

NAMES = {
  'convnet4': '4convNet',
  'mobilenet': 'MobileNet',
  'resnet18': 'ResNet-18',
}
AGAINST_TORCH = {'convnet4': 1.25, 'mobilenet': 1.25, 'resnet18': 1.0}
SIZES = {  # clients and steps: a round of a few seconds on two cores
  'convnet4': (8, 4),
  'mobilenet': (4, 2),
  'resnet18': (2, 1),
}
OTHER_SIZE = (4, 2)


def standard_case(model: str) -> Case:
  """Return the case of a model that its bars are about."""
  clients, steps = SIZES.get(model, OTHER_SIZE)
  return Case(model, clients, steps)


def is_bar(case: Case) -> bool:
  """Return whether a bar compares this case with PyTorch."""
  return (
    has_torch()
    and case.model in AGAINST_TORCH
    and case == standard_case(case.model)
  )


def training(repeats: int) -> Iterator[Bar]:
  """Yield local training against PyTorch, and 4convNet against a product."""
  yield from _against_torch('local training', 'training', repeats)
  one = measure(standard_case('convnet4'), 'training', repeats, has_torch())
  share = one.share('product', one.flops)
  yield Bar(
    '4convNet, share of the product peak',
    100 * share.median,
    50,
    '%',
    'at least',
    f'{100 * share.low:.0f} to {100 * share.high:.0f} % in {repeats} repeats; '
    'FLOPs of the direct convolutions',
  )


def evaluation(repeats: int) -> Iterator[Bar]:
  """Yield fine-tuning and evaluation of all clients against PyTorch."""
  yield from _against_torch('fine-tuning evaluation', 'evaluation', repeats)


def _against_torch(words: str, work: str, repeats: int) -> Iterator[Bar]:
  for model, bar in AGAINST_TORCH.items():
    name, unit = f'{NAMES[model]} {words}', 'x PyTorch'
    if not has_torch():
      yield Bar(name, None, bar, unit, 'at least', NO_TORCH)
      continue
    case = standard_case(model)
    ratio = measure(case, work, repeats, True).against_torch()
    yield Bar(
      name,
      ratio.median,
      bar,
      unit,
      'at least',
      f'{ratio.low:.2f} to {ratio.high:.2f} in {repeats} repeats',
    )


BARS: dict[str, Callable[[int], Iterator[Bar]]] = {
  'training': training,
  'evaluation': evaluation,
  'startup': startup.bars,
  'scale': scale.bars,
  'forecast': forecast.bars,
  'ragged': ragged.bars,
  'seeds': seeds.bars,
  'gpu': gpu.bars,
}
