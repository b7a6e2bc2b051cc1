"""The bars of the project, each measured by one function.

A function takes the number of repeats and yields its bars. A bar that cannot be
measured on this machine gives the reason, and is neither met nor missed.
"""

from collections.abc import Callable, Iterator

from experiments.benchmarks import (
  against_torch,
  forecast,
  gpu,
  ragged,
  scale,
  seeds,
  startup,
)
from experiments.benchmarks.bar import Bar

BARS: dict[str, Callable[[int], Iterator[Bar]]] = {
  **{name: against_torch.training_of(name) for name in against_torch.TRAINING},
  'evaluation': against_torch.evaluation,
  'startup': startup.bars,
  'scale': scale.bars,
  'forecast': forecast.bars,
  'ragged': ragged.bars,
  'seeds': seeds.bars,
  'gpu': gpu.bars,
}
