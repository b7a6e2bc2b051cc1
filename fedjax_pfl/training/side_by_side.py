"""Runs of one program side by side: one compiled call trains rounds of each.

A small run leaves a GPU idle: its steps are launches, which take as long for
eight runs as for one. So several runs are open at the same time, as many as
fill a step. Calls of equally many rounds of one stage (loop.py) are made
together; their runs may be in different rounds. A compiled call has a fixed
number of runs: if fewer are left, the first is trained twice. Results equal
those of one run after the other, up to rounding.

Runs train one after the other if their rounds are on a mesh, on the host or in
Python, if their functions hold the seed, or if a stage makes its own images.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import as_stored
from fedjax_pfl.core.rules import auto_or_count
from fedjax_pfl.core.target import card, launches_kernels
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.training import loop
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.signals import Stopped, catch_signals

RUNS = auto_or_count('runs')
MOST = 16  # each adds its arrays to a call, and to its compilation


def width_of(experiment: Experiment, number: int, asked: int | str) -> int:
  """Return how many runs are trained side by side, so that turns are full."""
  is_idle = launches_kernels() if asked == 'auto' else asked > 1
  if number < 2 or not (is_idle and is_possible(experiment)):
    return 1
  width = _widest(experiment) if asked == 'auto' else asked
  turns = -(-number // width)
  return -(-number // turns)


def is_possible(experiment: Experiment) -> bool:
  """Return whether compiled rounds of such runs can be side by side."""
  placement, debug = experiment.placement, experiment.settings.system.debug
  is_plain = placement.mesh is None and not placement.on_host and not debug
  prepared = {stage.prepare_data for stage in experiment.stages}
  return is_plain and prepared == {as_stored}


def _widest(experiment: Experiment) -> int:
  """Return how many runs fill a step, and at most half of the free memory."""
  setting, train = experiment.clients_per_chunk, experiment.train
  batch_size, fit = experiment.settings.train.batch_size, [MOST]
  for stage, *states in stage_shapes(experiment.stages, train):
    size, counts = experiment.sampler_of(stage).size, np.asarray(train.count)
    args = stage.algorithm, *states, jnp.arange(size), train, jax.random.key(0)
    limit = chunking.chunk_limit(setting, counts, size, batch_size)
    chunk = chunking.chunk_size(setting, *args, limit=limit)
    work = chunking.client_work(*args)
    free = chunking.free_memory((states, train))
    fit.append(card().full_step / max(chunk * work.flops, 1))
    if free is not None:  # states of a run, stacked, and those of the results
      need = chunk * work.activations + 3 * trees.num_bytes(states)
      fit.append(free / 2 / need)
  return max(int(min(fit)), 1)


def run_side_by_side(
  program: Program,
  runs: dict[int, tuple[Experiment, str]],
  width: int,
  fails_alone: Callable[[int], contextlib.AbstractContextManager],
  results: list[dict[str, Any] | None],
) -> None:
  """Train runs that share a program, each in its directory; fill in results.

  Each leaves what `train` leaves. `fails_alone(place)` takes the error of one
  run, and the others go on. After a signal every open run is saved.
  """
  waiting, stopped = deque(runs), []
  steps: dict[int, Generator] = {}
  calls: dict[int, loop.Call] = {}

  def advance(place, result=None):
    calls.pop(place, None)
    with fails_alone(place):
      try:
        calls[place] = steps[place].send(result)
      except StopIteration as end:
        results[place] = end.value
      except Stopped as error:
        if not error.logged:  # a second interrupt
          raise
        stopped.append(error)

  rounds = sum(experiment.rounds for experiment, _ in runs.values())
  with (
    contextlib.ExitStack() as stack,
    catch_signals() as signal_fn,
    progress.progress('training', rounds) as bar,
  ):
    part = partial(Part, bar, {})
    while calls or (waiting and not stopped):
      while waiting and len(calls) < width and not stopped:
        place = waiting.popleft()
        watched = contextlib.nullcontext((signal_fn, part(place)))
        how = *runs[place], program, lambda _, own=watched: own
        steps[place] = loop.in_steps(*how)
        stack.callback(steps[place].close)
        advance(place)
      kinds = {  # of a stage, and a number of rounds
        place: (own.place, own.args[3].shape) for place, own in calls.items()
      }
      first = next(iter(kinds.values()), None)
      alike = [place for place, own in kinds.items() if own == first]
      results_of = _call_together([calls[place] for place in alike], width)
      for place, result in zip(alike, results_of, strict=True):
        advance(place, result)
  if stopped:
    raise stopped[0]


def _call_together(calls: Sequence[loop.Call], width: int) -> list[tuple]:
  """Return what each call returns alone; its seconds are an equal share."""
  if not calls:
    return []
  first = calls[0]
  rounds = first.program.rounds(first.place, first.args[1], width)
  began = loop.times()
  results = rounds([call.args for call in calls])
  metrics = [jax.tree.map(np.asarray, own) for *_, own in results]  # waits
  share = (loop.times() - began) / len(calls)
  pairs = zip(results, metrics, strict=True)
  return [(states, own, share) for (*states, _), own in pairs]


class Part(NamedTuple):
  """The part of a run in a progress bar over the rounds of several."""

  bar: progress.Bar
  done: dict[int, int]  # rounds of each run
  place: int

  def update(self, done: int, **numbers: float) -> None:
    self.done[self.place] = done
    self.bar.update(sum(self.done.values()), **numbers)
