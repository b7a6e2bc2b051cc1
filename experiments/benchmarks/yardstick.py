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
import os
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax

from experiments.benchmarks import programs
from experiments.benchmarks.cases import Case
from experiments.benchmarks.timing import Run, in_turn

FORMS = ('eager', 'channels_last', 'compiled')
FINALISTS = 2
FIRST_REPEATS = 2


class Variant(NamedTuple):
  """One way to run PyTorch; `processes` 0: one process with all threads."""

  form: str
  processes: int

  @property
  def name(self) -> str:
    how = f'{self.processes} processes' if self.processes else 'one process'
    return f'{self.form}, {how}'


class Ranking(NamedTuple):
  """The variants from the fastest on, and why one does not take part."""

  variants: tuple[Variant, ...]
  left_out: str  # a sentence, or ''


def variants(case: Case, cores: int, backend: str) -> list[Variant]:
  """Return the variants of a case; on a GPU there is one process."""
  processes = _one_and_most(0, min(cores, case.clients), backend)
  return [Variant(form, number) for form in FORMS for number in processes]


def choices(case: Case, devices: int, backend: str) -> list[Case]:
  """Return the case on one device and, on a CPU, on all that it has.

  >>> [one.devices for one in choices(Case('vgg9', clients=4), 2, 'cpu')]
  [1, 2]
  """
  numbers = _one_and_most(1, min(devices, case.clients), backend)
  return [case._replace(devices=number) for number in numbers]


def _one_and_most(one: int, most: int, backend: str) -> list[int]:
  return [one, most] if backend == 'cpu' and most > 1 else [one]


@contextlib.contextmanager
def finalists(case: Case, work: str) -> Iterator[dict[str, Run]]:
  """Give the best variants of a case, warm, by name; end them afterwards."""
  chosen = ranking(case).variants[:FINALISTS]
  with contextlib.ExitStack() as stack:
    yield {
      one.name: stack.enter_context(running(case, work, one)) for one in chosen
    }


def ranking(case: Case) -> Ranking:
  """Return the variants of a case by their time for a round.

  Our devices are not theirs: the order is found once for all of them.
  """
  return _ranking(case._replace(devices=1))


@functools.cache  # evaluation has the variants of training
def _ranking(case: Case) -> Ranking:
  runs, left_out = {}, ''
  with contextlib.ExitStack() as stack:
    for one in variants(case, os.cpu_count() or 1, jax.default_backend()):
      try:
        runs[one] = stack.enter_context(running(case, 'training', one))
      except Exception as error:
        if one.form != 'compiled':
          raise
        first, *_ = [*str(error).strip().splitlines(), '']
        left_out = f'torch.compile is left out: {type(error).__name__}: {first}'
    ranked = _first_pass(runs, {one: one.name for one in runs})
  return Ranking(tuple(ranked), left_out)


@contextlib.contextmanager
def running(case: Case, work: str, variant: Variant) -> Iterator[Run]:
  """Give the function of one run, after a first call of it."""
  from experiments.benchmarks import torch_loop  # an extra

  device = 'cuda' if jax.default_backend() == 'gpu' else 'cpu'
  side = torch_loop.Side(case, variant.form, device)
  run, close = torch_loop.start(side, work, variant.processes)
  try:
    run()
    yield run
  finally:
    close()


@functools.cache
def at_our_best(case: Case, work: str) -> Case:
  """Return the case with the number of devices that is faster for the work."""
  ours = choices(case, jax.local_device_count(), jax.default_backend())
  if len(ours) == 1:
    return ours[0]
  runs = {one: programs.make(one, work).run for one in ours}
  for run in runs.values():
    run()
  return _first_pass(runs, {one: f'ours, {words(one)}' for one in ours})[0]


def _first_pass(runs: Mapping, names: Mapping) -> list:
  """Return the keys from the fastest on, by the fastest time; print all."""
  seconds = in_turn(runs, FIRST_REPEATS)
  ranked = sorted(seconds, key=lambda one: min(seconds[one]))
  for one in ranked:
    text = f'  {names[one]}: {min(seconds[one]):.2f} s'
    print(text, file=sys.stderr, flush=True)
  return ranked


def words(case: Case) -> str:
  """Return the devices of a case in words.

  >>> words(Case('vgg9')), words(Case('vgg9', devices=2))
  ('one device', '2 devices')
  """
  return f'{case.devices} devices' if case.devices > 1 else 'one device'
