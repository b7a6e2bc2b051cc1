"""The bars of a GPU: FedBABU on CIFAR-100 with MobileNet, in full size."""

from collections.abc import Iterator

import jax

from experiments.benchmarks.bar import Bar
from experiments.benchmarks.cases import Case
from experiments.benchmarks.measure import NO_TORCH, has_torch, measure
from experiments.benchmarks.timing import spread

ROUNDS = 320
ALL = Case(*('mobilenet', 100, 10), method='fedbabu', num_classes=100, epochs=5)
TENTH = ALL._replace(clients=10)
WHOLE_RUN = f'{ROUNDS} rounds and evaluation, f=1.0'
ROUND = 'a round of MobileNet, f=0.1'


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the time of a full run, and of a round against PyTorch."""
  if jax.default_backend() != 'gpu':
    why = 'no GPU here'
    yield Bar(WHOLE_RUN, None, 180, 's', 'at most', why)
    yield Bar(ROUND, None, 10, 'x PyTorch', 'at least', why)
    return
  yield whole_run(ALL, repeats)
  yield against_torch(TENTH, repeats)


def whole_run(case: Case, repeats: int) -> Bar:
  """Return the seconds of all rounds and the final evaluation."""
  seconds = {
    work: spread(
      measure(case, work, repeats, False, False).seconds['ours']
    ).median
    for work in ('training', 'evaluation')
  }
  return Bar(
    WHOLE_RUN,
    ROUNDS * seconds['training'] + seconds['evaluation'],
    180,
    's',
    'at most',
    f'{ROUNDS} x {seconds["training"]:.3f} s + {seconds["evaluation"]:.1f} s, '
    'compilation not counted',
  )


def against_torch(case: Case, repeats: int) -> Bar:
  """Return a round against the plain PyTorch loop on the same GPU."""
  if not has_torch():
    return Bar(ROUND, None, 10, 'x PyTorch', 'at least', NO_TORCH)
  ratio = measure(case, 'training', repeats, True, False).against_torch()
  return Bar(
    ROUND,
    ratio.median,
    10,
    'x PyTorch',
    'at least',
    f'{ratio.low:.2f} to {ratio.high:.2f}; torch_loop.py in place of '
    "the authors' code; it loads no data",
  )
