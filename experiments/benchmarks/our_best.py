"""Ours at its best, as PyTorch is at its best in yardstick.py.

On a CPU a round, or an evaluation, runs on one device, whose products use all
cores, or on one device a core, which all have clients of their own
(`--config.devices`). A first pass runs both once to warm up and twice in turn;
the faster is measured.
"""

import functools
import sys

import jax

from experiments.benchmarks import cases, yardstick
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import in_turn


def choices(case: Case, devices: int, backend: str) -> list[Case]:
  """Return the case on one device and, on a CPU, on all that it has.

  >>> [one.devices for one in choices(Case('vgg9', clients=4), 2, 'cpu')]
  [1, 2]
  """
  most = min(devices, case.clients)
  counts = [1, most] if backend == 'cpu' and most > 1 else [1]
  return [case._replace(devices=count) for count in counts]


@functools.cache
def at_our_best(case: Case, work: str) -> Case:
  """Return the case with the number of devices that is faster for the work."""
  ours = choices(case, jax.local_device_count(), jax.default_backend())
  if len(ours) == 1:
    return ours[0]
  runs = {one: cases.make(one, work).run for one in ours}
  for run in runs.values():
    run()
  seconds = in_turn(runs, yardstick.FIRST_REPEATS)
  for one in ours:
    text = f'  ours, {words(one)}: {min(seconds[one]):.2f} s'
    print(text, file=sys.stderr, flush=True)
  return yardstick.rank(seconds)[0]


def words(case: Case) -> str:
  """Return the devices of a case in words.

  >>> words(Case('vgg9')), words(Case('vgg9', devices=2))
  ('one device', '2 devices')
  """
  return f'{case.devices} devices' if case.devices > 1 else 'one device'
