"""How long a run will take on this machine, and how much memory.

The real round is compiled and run for a moment: on no example, on one batch
of as many clients as run side by side, and where that is a matter of seconds
on all their batches. With r rounds, C clients a round, c of them side by side:

  seconds = 2 compile + r (t_0 + C/c (t_full - t_0)) + judging

Judging is reckoned: its programs take as long to compile as the round, and a
test image a third of the gradient of a training image. What other processes
take is in the seconds, and not in the bytes.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithm import Stage
from fedjax_pfl.engine import auto_chunk, begin, make_round
from fedjax_pfl.experiment import Experiment
from fedjax_pfl.train import cadence, random_streams
from fedjax_pfl.types import Array, ClientData

FULL_CLIENT_BELOW = 20.0  # seconds: what a dry run may spend on one client
REPEATS = 2
FORWARD_SHARE = 1 / 3  # of a gradient step


class Forecast(NamedTuple):
  seconds: float
  bytes: int  # largest among the rounds of its stages


class _Cost(NamedTuple):
  """What was measured of one stage."""

  compile: float  # seconds
  round: float  # seconds
  step: float  # seconds of one gradient step of one client
  bytes: int


def forecast(
  experiment: Experiment, say: Callable[[str], None] = lambda text: None
) -> Forecast:
  """Return the forecast of a whole run; takes seconds to a minute.

  >>> forecast(build(settings)).seconds
  """
  seconds, most, state = 0.0, 0, None
  for stage in experiment.stages:
    if state is None:
      key = random_streams(experiment.settings['seed'])['states']
      state = begin(stage, experiment.train, key)
    else:
      state = stage.enter(*state, experiment.train)
    say(f'measuring {experiment.settings["algorithm"]}, {stage.name}')
    cost = _measure(experiment, stage, state)
    seconds += 2 * cost.compile + stage.rounds * cost.round
    seconds += _judging(experiment, stage, cost)
    most = max(most, cost.bytes)
  return Forecast(seconds, most)


def program_of(experiment: Experiment) -> tuple[Any, ...]:
  """Return what decides the forecast: equal for cells that need but one."""
  settings = experiment.settings
  moved = ('seed', 'shards', 'beta', 'partition', 'start', 'test_shards')
  kept = {name: settings[name] for name in settings if name not in moved}
  return (repr(sorted(kept.items())), experiment.train.index.shape)


def _measure(experiment: Experiment, stage: Stage, state: tuple) -> _Cost:
  """Return the cost of a round of the stage, from these states."""
  settings = experiment.settings
  key = random_streams(settings['seed'])['rounds']
  data = stage.prepare(state[0], experiment.train)
  size = settings['clients'] if stage.everyone else experiment.cohort_size
  cohort = jnp.arange(size)
  side_by_side = settings['chunk']
  if side_by_side == 'auto':
    side_by_side = auto_chunk(stage.algorithm, *state, cohort, data, key)
  side_by_side = min(side_by_side, size)
  began = time.perf_counter()
  round_fn = make_round(stage.algorithm, chunk=side_by_side)
  program = jax.jit(round_fn).lower(*state, cohort, data, key).compile()
  compiled = time.perf_counter() - began

  def run(examples):
    count = np.zeros(data.count.shape, np.int32)
    count[:side_by_side] = examples
    fewer = data._replace(count=jnp.asarray(count))
    return _time(program, state, cohort, fewer, key)

  batch = settings['batch_size']
  typical = _typical(data)
  nothing, _ = run(0)
  first, steps = run(min(batch, typical))
  step = (first - nothing) / max(steps, 1)
  work = (first - nothing) * _batches(typical, batch)
  if work < FULL_CLIENT_BELOW:
    work = run(typical)[0] - nothing
  others = _batches(np.asarray(data.count), batch) / _batches(typical, batch)
  seconds = nothing + size / side_by_side * work * float(others.mean())
  return _Cost(compiled, seconds, step, _bytes(program))


def _time(
  program: Callable,
  state: tuple,
  cohort: Array,
  data: ClientData,
  key: Array,
) -> tuple[float, float]:
  """Return the median seconds of a call, and the steps of a client at most."""
  times, metrics = [], {}
  for _ in range(REPEATS):
    began = time.perf_counter()
    _, _, metrics = jax.block_until_ready(program(*state, cohort, data, key))
    times.append(time.perf_counter() - began)
  return statistics.median(times), float(np.max(metrics['num_steps']))


def _judging(experiment: Experiment, stage: Stage, cost: _Cost) -> float:
  """Return the seconds of all evaluations of a stage."""
  settings = experiment.settings
  support, query = experiment.judging
  every = cadence(settings, experiment.rounds).evaluate
  tests = FORWARD_SHARE * _batches(
    np.asarray(query.count), settings['batch_size']
  )
  during = stage.rounds // every * len(settings['eval_views']) * tests.sum()
  if stage is not experiment.stages[-1]:
    return float(cost.step * during)
  after = len(settings['views']) * tests.sum()
  if any(view.startswith('finetuned') for view in settings['views']):
    own = settings['finetune']
    batches = _batches(np.asarray(support.count), own['batch_size'])
    after += max(own['epochs']) * batches.sum()
  return cost.step * float(during + after)


def _typical(data: ClientData) -> int:
  count = np.asarray(data.count)
  return int(np.median(count[count > 0])) if count.any() else 0


def _batches(examples: Any, size: int) -> Any:
  return np.maximum(-(-np.asarray(examples) // size), 1)


def _bytes(program: Any) -> int:
  """Return the memory of a program: what goes in, comes out, lies between."""
  memory = program.memory_analysis()
  return int(
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    + memory.temp_size_in_bytes
  )
