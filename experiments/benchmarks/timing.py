"""Time runs in turn, so that the load of the machine affects all of them.

In training a round follows a round. After a pause it is slower: the kernel, and
the host of a virtual machine, have taken back the memory that it needs. So a
run whose last turn is a second ago is repeated without being timed.
"""

import contextlib
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REST = 0.05  # seconds: threads of a library keep spinning after their work
PAUSE = 1.0  # seconds since the last run, before which memory is still there

Run = Callable[[], Any]  # once, to its end


class Spread(NamedTuple):
  """Median, minimum and maximum of repeats."""

  median: float
  low: float
  high: float


def spread(values: Sequence[float]) -> Spread:
  """Return the median, the minimum and the maximum of the repeats.

  >>> spread([3, 1, 2])
  Spread(median=2, low=1, high=3)
  """
  return Spread(statistics.median(values), min(values), max(values))


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
  """Return over / under for each repeat: the two ran one after the other.

  >>> ratios([4, 9], [2, 3])
  [2.0, 3.0]
  """
  return [x / y for x, y in zip(over, under, strict=True)]


def in_turn(
  runs: Mapping[Hashable, Run], repeats: int
) -> dict[Hashable, list[float]]:
  """Return the seconds of every repeat: each run once, then all again."""
  seconds = {name: [] for name in runs}
  ends = dict.fromkeys(runs, -math.inf)
  for _ in range(repeats):
    for name, run in runs.items():
      time.sleep(REST)
      if time.perf_counter() - ends[name] > PAUSE:
        run()
      began = time.perf_counter()
      run()
      ends[name] = time.perf_counter()
      seconds[name].append(ends[name] - began)
  return seconds


@contextlib.contextmanager
def processes(
  file: str, shares: Sequence[Sequence[object]], environ: Mapping[str, str]
) -> Iterator[Run]:
  """Give one run of processes of a file here, warm; each has its own words.

  A process answers a line with the seconds of its run, or with an error.
  """
  program, pipe = Path(__file__).with_name(file), subprocess.PIPE
  pipes = {'stdin': pipe, 'stdout': pipe, 'text': True, 'env': environ}
  with contextlib.ExitStack() as stack:
    started = []
    for share in shares:
      command = [sys.executable, str(program), *map(str, share)]
      process = stack.enter_context(subprocess.Popen(command, **pipes))
      stack.callback(process.stdin.close)  # which ends it
      started.append(process)

    def run():
      for process in started:
        print(file=process.stdin, flush=True)
      for process in started:
        answer = process.stdout.readline().strip()
        try:
          float(answer)
        except ValueError:
          raise RuntimeError(answer or f'{file} has ended') from None

    run()  # compiles
    yield run
