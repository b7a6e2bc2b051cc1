"""The PyTorch that ours is measured against: the fastest of its variants.

  form      eager, channels_last (memory format), compiled (torch.compile)
  how       one process with a thread a core, or one single-threaded process a
            core, with the clients dealt out

A first pass runs every variant once to warm it up and twice in turn; it ranks
them by their faster time. The two best are then timed in turn with ours at all
repeats, and the ratio is taken to the one with the smaller median.

Ours is at its best, too: on a CPU a round, or an evaluation, runs on one
device, whose products use all cores, or on one device a core, which all have
clients of their own (`--config.devices`). A first pass of the same length
chooses.
"""

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import jax

from experiments.benchmarks import programs
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import Run, in_turn, processes
from fedjax_pfl.core.machine import num_cores

FORMS = ('eager', 'channels_last', 'compiled')
FINALISTS = 2
FIRST_REPEATS = 2


class Variant(NamedTuple):
  """One way to run PyTorch; `processes` 0: one process with all threads."""

  form: str
  processes: int

  def __str__(self) -> str:
    several = f'{self.processes} processes' if self.processes else ''
    return f'{self.form}, {several or "one process"}'


class Ranking(NamedTuple):
  """The variants from the fastest on, and why one does not take part."""

  variants: tuple[Variant, ...]
  left_out: str  # a sentence, or ''


@functools.cache  # evaluation has the variants of training
def ranking(case: Case) -> Ranking:
  """Return the variants of a case by their time for a round.

  Our devices are not theirs: the order is found once for all of them. On a GPU
  there is one process, on a CPU also one a core, but not more than clients.
  """
  if case.devices > 1:
    return ranking(case._replace(devices=1))
  runs, left_out = {}, ''
  several = min(num_cores(), case.clients)
  on_cpu = jax.default_backend() == 'cpu'
  processes = [0, several] if on_cpu and several > 1 else [0]
  with contextlib.ExitStack() as stack:
    for pair in itertools.product(FORMS, processes):
      variant = Variant(*pair)
      try:
        runs[variant] = stack.enter_context(running(case, 'training', variant))
      except RuntimeError as error:
        if variant.form != 'compiled':
          raise
        left_out = f'torch.compile is left out: {error}'
    return Ranking(tuple(_first_pass(runs)), left_out)


def running(
  case: Case, work: str, variant: Variant
) -> contextlib.AbstractContextManager[Run]:
  """Give the function of one run of PyTorch, after a first call of it."""
  number = variant.processes
  dealt = [len(range(at, case.clients, number)) for at in range(number)]
  after = case.steps, case.batch, case.momentum, work, int(number > 0)
  shares = [
    (variant.form, case.model, clients, *after)
    for clients in dealt or [case.clients]
  ]
  return processes('torch_loop.py', shares, os.environ)


@functools.cache
def at_our_best(case: Case, work: str) -> Case:
  """Return the case with the number of devices that is faster for the work."""
  several = min(jax.local_device_count(), case.clients)
  if jax.default_backend() != 'cpu' or several == 1:
    return case
  ours = {f'ours, {in_words(number)}': number for number in (1, several)}
  runs = {
    name: programs.make(case._replace(devices=number), work).run
    for name, number in ours.items()
  }
  for run in runs.values():
    run()
  return case._replace(devices=ours[_first_pass(runs)[0]])


def _first_pass(runs: Mapping[Hashable, Run]) -> list[Hashable]:
  """Return the names from the fastest on, by the fastest time; print all."""
  seconds = in_turn(runs, FIRST_REPEATS)
  ranked = sorted(seconds, key=lambda name: min(seconds[name]))
  for name in ranked:
    print(f'  {name}: {min(seconds[name]):.2f} s', file=sys.stderr, flush=True)
  return ranked


def in_words(devices: int) -> str:
  """Return the number of our devices in words.

  >>> in_words(1), in_words(2)
  ('one device', '2 devices')
  """
  return f'{devices} devices' if devices > 1 else 'one device'
