"""Every method against FedAvg: the time for one gradient."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.benchmarks.cases import Case
from experiments.benchmarks.programs import make_training
from experiments.benchmarks.timing import Run, in_turn, ratios, spread


def compare(
  case: Case, methods: Sequence[str], repeats: int
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yield the name of each method and its gradients, seconds and ratio.

  A gradient's time is that of the round over its number of gradients, which is
  in the metrics. Each method runs in turn with FedAvg alone, so that the load
  of the machine affects both.
  """
  fedavg = make_training(case._replace(method='fedavg')).run
  own = _gradients(fedavg)
  for name in methods:
    run = make_training(case._replace(method=name)).run
    gradients = _gradients(run)
    seconds = in_turn({'fedavg': fedavg, 'method': run}, repeats)
    over = ratios(seconds['method'], seconds['fedavg'])
    ratio = spread([one * own / gradients for one in over])
    yield (
      name,
      {'gradients': gradients, 'seconds': seconds, 'ratio': ratio._asdict()},
    )


def line(name: str, numbers: dict[str, Any]) -> str:
  """Return a line for a method: its gradient relative to FedAvg's."""
  seconds = statistics.median(numbers['seconds']['method'])
  return (
    f'{name:12} {numbers["gradients"]:4} gradients {seconds:8.3f} s a round '
    '{median:6.2f} x FedAvg ({low:.2f} to {high:.2f})'
  ).format(**numbers['ratio'])


def _gradients(run: Run) -> int:
  """Return the gradients of a round, which also warms it up."""
  return int(run()[2]['num_steps'].sum())
