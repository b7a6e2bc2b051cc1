"""Simulated time: clients of unlike speed, and a deadline for slow ones.

  v_i  =  exp(sigma z_i),  z_i ~ N(0, 1)    steps a second; or from a file
  t    <- t + max_i T_i / v_i               over the cohort's clients that send

T_i are the gradient steps of client i in the round, the metric `num_steps`.
Nothing else takes time: no network, no server, no evaluation. A client that
drops out is not waited for.

With a deadline D a client has time for b_i = floor(D v_i) of the P_i steps that
it should do. Who would need longer

  drop     sends nothing, as if it failed (failures.py)
  partial  does b_i steps, and sends nothing where that is 0

and a round in which any client of the cohort sends nothing lasts D: the server
cannot know. Both policies are one number a client, the share `ClientData.work`
of its steps, known before a run compiles. Where all clients have to take part,
the server waits for them.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedjax_pfl.around import buffers
from fedjax_pfl.core import named_file, trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.errors import bad_input, may_read
from fedjax_pfl.core.records import field, path, record
from fedjax_pfl.core.rules import at_least, count, one_of
from fedjax_pfl.core.types import Array, ClientData
from fedjax_pfl.data.held_out import generator
from fedjax_pfl.federated.chunking import shapes_of
from fedjax_pfl.federated.rounds import stage_shapes

NONE, DRAWN = 'none', 'lognormal'  # in the place of a file
SPEEDS, ORDERS = 1001, 1002  # streams of the seed, as in server_training.py


@record()
class Speeds:
  """How fast clients are, and for whom the server waits.

  Args:
    client_speeds: steps a second of each client, in simulated time: none;
      lognormal, drawn with median 1; or a file of numbers
    speed_sigma: deviation of the logarithm of drawn speeds
    deadline: simulated seconds after which a round ends; 0: with its slowest
      client
    late_clients: drop: they send nothing; partial: they do the steps that fit
    buffer_size: asynchronous (FedBuff): the server moves after so many uploads,
      while client_fraction of the clients are at work; 0: in rounds
  """

  client_speeds: str = field(
    NONE,
    path('none, lognormal, or a text file of a number for each client'),
    stored=lambda name: (
      name if name in (NONE, DRAWN) else named_file.with_digest(name)
    ),
  )
  speed_sigma: float = field(
    1.0, at_least(0), needs=('client_speeds', DRAWN), only=True
  )
  deadline: float = field(0.0, at_least(0))
  late_clients: str = field(
    'drop', one_of(('drop', 'partial')), needs=('deadline', 20)
  )
  buffer_size: int = field(0, count('uploads', smallest=0))

  def __bool__(self) -> bool:
    return self.client_speeds != NONE

  def of_clients(self, seed: int, num_clients: int) -> np.ndarray:
    """Return the steps a second of each client: [K]."""
    if self.client_speeds == DRAWN:
      return draw_speeds(seed, self.speed_sigma, num_clients)
    return read_speeds(self.client_speeds, num_clients)


class Timing(NamedTuple):
  """How long rounds take, and what clients have time for."""

  speeds: np.ndarray  # [K] steps a second
  deadline: float = 0.0  # seconds; 0 is none
  # [K] of each stage, `ClientData.work`; None where all clients are waited for
  works: tuple[np.ndarray | None, ...] = ()
  schedule: buffers.Schedule | None = None  # of buffers

  def work(self, stage_number: int) -> np.ndarray | None:
    """Return the share of its steps that each client does in a stage: [K]."""
    return self.works[stage_number] if self.works else None

  @property
  def buffers(self) -> buffers.Buffers | None:
    """Return the buffers of the run, if it has any."""
    if self.schedule is None:
      return None
    return buffers.Buffers(self.schedule, len(self.speeds))

  def advance(
    self,
    seconds: float,
    stop: int,
    cohorts: np.ndarray,
    num_steps: np.ndarray,
    is_missing: np.ndarray,
  ) -> float:
    """Return the seconds after round `stop`, the last of these [T, C].

    Clients that are missing joined a round, and sent nothing.
    """
    if self.schedule is not None:
      return float(self.schedule.seconds[stop - 1])
    lasting = np.where(
      is_missing, self.deadline, num_steps / self.speeds[cohorts]
    )
    # One by one: the same bits for calls of any length.
    for lasts in lasting.max(1):
      seconds += float(lasts)
    return seconds


def draw_speeds(seed: int, sigma: float, num_clients: int) -> np.ndarray:
  """Return a speed for every client, log-normal with median 1: [K]."""
  return np.exp(sigma * generator(seed, SPEEDS).normal(size=num_clients))


@may_read('client_speeds')
def read_speeds(path: str | os.PathLike, num_clients: int) -> np.ndarray:
  """Return the K numbers of a text file, in the order of the clients' ids."""
  file = os.fspath(path)
  try:
    file, text = named_file.read('client_speeds', file)
    speeds = np.array(text.replace(',', ' ').split(), float)
  except PermissionError:  # of which `may_read` makes a sentence
    raise
  except (OSError, ValueError) as error:
    wrong = str(error)
  else:
    is_right = np.all(np.isfinite(speeds) & (speeds > 0))
    if speeds.shape == (num_clients,) and is_right:
      return speeds
    wrong = f'{speeds.size} numbers, from {speeds.min(initial=np.inf):g} on'
  raise bad_input(
    'client_speeds',
    got=f'{file}: {wrong}',
    expected=f'a text file of {num_clients} numbers above 0, the steps a '
    'second of every client that takes part',
    choices=['none', 'lognormal', 'FILE'],
    cause='a path from another folder, a header, or another number of clients',
  )


def make_timing(
  stages: Sequence[Stage],
  data: ClientData,
  speeds: np.ndarray,
  rule: Speeds,
  log: Callable[[str], None],
) -> Timing:
  """Return the times of a run; refuse a deadline that no client meets."""
  if not (deadline := rule.deadline):
    return Timing(speeds)
  works = []
  for stage, *states in stage_shapes(stages, shapes_of(data)):
    work = None
    if not stage.full_participation:
      done = steps_function(stage, *states, data)
      steps = planned_steps(done, data.count)
      work = shares(steps, speeds, deadline, rule.late_clients)
      _check_work(stage.name, done, data.count, work, steps, speeds, deadline)
      late = (work < 1).sum()
      log(f'{stage.name}: {late:,} of {len(work):,} clients miss the deadline')
    works.append(work)
  return Timing(speeds, deadline, tuple(works))


def make_buffers(
  stages: Sequence[Stage],
  data: ClientData,
  speeds: np.ndarray,
  sizes: tuple[int, int],
  seed: int,
  log: Callable[[str], None],
) -> Timing:
  """Return the times of a run in buffers; sizes: (clients at work, buffer).

  As many clients as there is room for begin to work on a version, drawn without
  replacement.
  """
  stage, *states = buffers.only_stage(stages, shapes_of(data))
  if not stage.rounds:
    return Timing(speeds)
  steps_of = steps_function(stage, *states, data)
  steps = planned_steps(steps_of, data.count)
  rng = generator(seed, ORDERS)
  orders = (rng.permutation(len(speeds)) for _ in range(stage.rounds))
  schedule = buffers.make_schedule(steps / speeds, orders, *sizes)
  log(
    f'buffers: up to {schedule.staleness.max()} versions late, on average '
    f'{schedule.staleness.mean():.1f}'
  )
  return Timing(speeds, schedule=schedule)


def shares(
  steps: np.ndarray, speeds: np.ndarray, deadline: float, policy: str
) -> np.ndarray:
  """Return the shares of so many steps [K] for which there is time: [K]."""
  # A little more: 0.29 x 100 is 28.999999999999996, and time for 29 steps.
  possible = np.floor(np.minimum(deadline * speeds * (1 + 1e-12), steps))
  # Half a step more: the product with P_i, rounded down, has to be b_i.
  part = (possible + 0.5) / np.maximum(steps, 1)
  if policy == 'drop':
    part = np.zeros_like(part)
  work = np.where(possible < 1, 0, part)
  return np.where(possible >= steps, 1, work).astype(np.float32)


def planned_steps(steps_of: Callable, counts: np.ndarray) -> np.ndarray:
  """Return the steps of each client in a round without a deadline: [K]."""
  distinct, places = np.unique(np.asarray(counts), return_inverse=True)
  steps = [int(steps_of(count, np.float32(1))) for count in distinct]
  return np.array(steps)[places]


def steps_function(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> Callable[[int, float], Array]:
  """Return (examples, share of the steps) -> steps that a client does.

  The metric `num_steps` of a local update is computed from these two, and the
  compiler leaves out the rest. `server` and `clients` are shapes.
  """
  pool = jax.eval_shape(stage.prepare_data, server, shapes_of(data))

  @jax.jit
  def steps_of(count, work):
    client, index = trees.gather(trees.zeros((clients, pool.index)), 0)
    examples = ClientData(*trees.zeros((pool.x, pool.y)), index, count, work)
    method, key = stage.algorithm, jax.random.key(0)
    down = method.download(trees.zeros(server), client)
    return method.local_update(down, client, examples, key)[2]['num_steps']

  return steps_of


def _check_work(name, done, counts, work, steps, speeds, deadline) -> None:
  """Refuse a deadline by which nobody has done a step that is sent.

  A method may do its steps in groups: then time for one is for none.
  """
  has_steps = steps > 0
  first = [k for k in np.argsort(-work * steps) if work[k] * steps[k] > 0]
  if not has_steps.any() or any(done(counts[k], work[k]) > 0 for k in first):
    return
  seconds = (steps / speeds)[has_steps].min()
  raise bad_input(
    'deadline',
    got=deadline,
    expected=f'more: nobody would send anything; the first client has done all '
    f'its local steps of {name} after {seconds:.3g} seconds',
    choices=[f'deadline={2 * seconds:.3g}', 'deadline=0, to wait for all'],
    cause='seconds of another data set, batch size or number of epochs',
  )
