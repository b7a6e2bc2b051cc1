"""What a plan takes, before anything of it is compiled or trained.

  rounds      sum over stages of  T C / c (client + steps step)
  evaluation  K / c (steps of fine-tuning + views x batches of tests / 3) step
  programs    COMPILATIONS for each stage, and for each kind of evaluation

and FILES for each run. T rounds of C clients, c of them at the same time. The
method itself says how many steps a client makes (`num_steps`). Seeds, and
numbers that a program may have as arguments, share programs; a training that is
twice in a plan is paid once.

What a client, a step and a compilation of a round take is timed once: FedAvg's
round of one client, or of as many as run side by side, without a step and with
a few, on blank examples. The file is in the user's cache, named by a hash of
the machine, the model and its inputs.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.sim_time import planned_steps, steps_function
from fedjax_pfl.compare.plan import Plan, shapes_key
from fedjax_pfl.core import atomic_files, trees
from fedjax_pfl.core.target import launches_kernels
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.dealing import divide
from fedjax_pfl.data.images import Shape
from fedjax_pfl.evaluation.choices import FINETUNED
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.federated.sharding import choose_devices
from fedjax_pfl.runs import result_file
from fedjax_pfl.runs.identity import provenance
from fedjax_pfl.settings import DataSettings, Settings
from fedjax_pfl.settings.validate import program_key
from fedjax_pfl.training import build_method
from fedjax_pfl.training.build_data import images_of
from fedjax_pfl.training.compile_cache import machine
from fedjax_pfl.training.frozen_features import head_of
from fedjax_pfl.training.loop import cadence, num_images
from fedjax_pfl.training.outline import Outline, sketch

Log = Callable[[str], None]
OF_A_STEP = 1 / 3  # what a prediction takes
# Measured with FedAvg, Ditto, FedRep and Local only on the digits, two cores:
COMPILATIONS = 2.5  # 1.9 to 3.0 of a round, with the small programs of a start
FILES = 1.5  # seconds
STEPS = 4
# The fastest call counts: other processes only slow it down.
REPEATS, SECONDS = 2, 1.0


class Cost(NamedTuple):
  """What trainings take; none if all are in the plan before."""

  trainings: int = 0
  rounds: int = 0  # of all stages
  images: float = 0.0  # of local training
  seconds: float = 0.0  # on this machine


class Clients(NamedTuple):
  """How many examples each client has, [K]."""

  train: np.ndarray
  test: np.ndarray


class Speed(NamedTuple):
  """Seconds: of a compilation, of a client without steps, and of a step."""

  compilation: float
  client: float
  step: float


class Counted(NamedTuple):
  """A stage, of which the method itself counts the steps."""

  rounds: int
  everyone: bool  # whether all clients take part
  steps_of: Callable  # of examples, and of a share of the steps


def forecast(plan: Plan, log: Log) -> list[Cost]:
  """Return what each training takes beside those before it in the plan."""
  log = functools.cache(log)
  clients_of: dict[DataSettings, Clients] = {}
  counted: dict[tuple[str, int], list[Counted]] = {}
  known, compiled, costs = set(), set(), []
  for settings, _ in plan:
    if repr(settings) in known:
      costs.append(Cost())
      continue
    known.add(repr(settings))
    if settings.data not in clients_of:  # other seeds deal nearly as many
      clients_of[settings.data] = _clients_of(sketch(settings), log)
    clients = clients_of[settings.data]
    size = 2 ** int(clients.train.max()).bit_length()
    key = shapes_key(settings), size
    if key not in counted:
      counted[key] = [*_counted(settings, size)]
    is_new = program_key(settings) not in compiled
    compiled.add(program_key(settings))
    costs.append(_cost(settings, clients, counted[key], is_new, log))
  return costs


def total(costs: Iterable[Cost]) -> Cost:
  return Cost(*map(sum, zip(*costs, strict=True)))


def _clients_of(outline: Outline, log: Log) -> Clients:
  """Return how many examples the clients have, of blank images if need be."""
  data, seed = outline.settings.data, outline.settings.seed
  division = divide(data, seed, images_of(outline.settings, outline.shape, log))
  count = lambda rows: np.array([*map(len, rows)])
  return Clients(count(division['train']), count(division['test']))


def _counted(settings: Settings, size: int) -> Iterator[Counted]:
  """Yield the stages, for clients of at most so many examples."""
  run, clients = sketch(settings), settings.data.num_seen_clients
  shapes = shapes_of_clients(run.inputs, clients, size)
  for stage, *states in stage_shapes(run.stages, shapes):
    steps_of = steps_function(stage, *states, shapes)
    yield Counted(stage.rounds, stage.full_participation, steps_of)


def _cost(
  settings: Settings,
  clients: Clients,
  stages: Sequence[Counted],
  is_new: bool,
  log: Log,
) -> Cost:
  batch_size, number = settings.train.batch_size, len(clients.train)
  drawn = build_method.make_sampler(settings, clients.train).mean_size
  taking_part = [number if stage.everyone else drawn for stage in stages]
  largest = int(max(taking_part))
  given = settings.system.clients_per_chunk
  side_by_side = largest if given == 'auto' else min(given, largest)
  side_by_side = side_by_side if launches_kernels() else 1
  speed = speed_of(settings, side_by_side, log)
  devices = settings.system.devices or choose_devices(largest)
  at_once = side_by_side * devices
  images, seconds = 0.0, FILES
  for stage, cohort in zip(stages, taking_part, strict=True):
    steps = planned_steps(stage.steps_of, clients.train)
    each = num_images(steps, clients.train, batch_size) / number
    images += stage.rounds * cohort * each
    turn = speed.client + steps.mean() * speed.step
    seconds += stage.rounds * cohort / at_once * turn
  evaluations = {settings.final_views: 1}
  if views := _views_on_the_way(settings):
    last = stages[-1].rounds
    times = 1 + last // cadence(settings, last).evaluate
    evaluations[views] = times + evaluations.get(views, 0)
  for views, times in evaluations.items():
    steps = _steps_of_evaluation(settings, clients, views)
    seconds += times * number / at_once * steps * speed.step
  if is_new:
    programs = COMPILATIONS * (len(stages) + len(evaluations))
    seconds += programs * speed.compilation
  rounds = sum(stage.rounds for stage in stages)
  return Cost(1, rounds, images, seconds)


def _views_on_the_way(settings: Settings) -> tuple[str, ...]:
  evaluation = settings.evaluation
  if evaluation.select == 'validation':
    return *evaluation.eval_views, *settings.candidate_views
  return evaluation.eval_views


def _steps_of_evaluation(
  settings: Settings, clients: Clients, views: Iterable[str]
) -> float:
  """Return how many steps of training an evaluation of a client is worth."""
  size, tuned = settings.train.batch_size, settings.finetune
  steps = OF_A_STEP * len([*views]) * np.ceil(clients.test / size).mean()
  if any(view.startswith(FINETUNED) for view in views):
    images = max(tuned.epochs) * clients.train.mean()
    steps += images / size * (1 + len(tuned.factors))
  return float(steps)


# ---- how fast this machine trains a model ------------------------------------


def speed_of(settings: Settings, side_by_side: int, log: Log) -> Speed:
  """Return the speed of clients that run side by side with this model."""
  shape = build_method.peek_shape(settings.data)
  device = jax.devices()[0].device_kind
  program = settings.model, settings.data.loss, settings.train.batch_size
  known = machine(), device, jax.__version__, provenance()['version']
  examples = shape._replace(num_clients=0, has_tests=True)  # whoever has them
  content = [*known, side_by_side, repr(program), repr(examples)]
  name = f'{result_file.digest(content)[:16]}.json'
  with contextlib.suppress(OSError, ValueError, TypeError):
    stored = (atomic_files.cache_root() / 'speeds' / name).read_bytes()
    return Speed(**atomic_files.parse_object(stored))
  log(f'A round of {settings.model.name} is timed, once on this machine.')
  speed = measure(settings, shape, side_by_side)
  with contextlib.suppress(OSError):  # no home, or it is full
    path = atomic_files.cache_root() / 'speeds' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_json(path, speed._asdict())
  return speed


def measure(settings: Settings, shape: Shape, clients: int) -> Speed:
  """Compile and time a round of `clients` clients side by side."""
  task = build_method.build_task(settings, shape)._replace(others=())
  if settings.model.frozen_features:
    task, shape = head_of(task, shape)
  settings = settings._replace(algorithm='fedavg', hp={})
  size = STEPS * settings.train.batch_size
  shapes = shapes_of_clients(shape, clients, size)
  stages = build_method.build_stages(settings, task)
  ((stage, *states),) = stage_shapes(stages, shapes)
  round_fn = make_round(stage.algorithm, clients_per_chunk=clients, mesh=None)
  *states, data = trees.zeros((*states, shapes))
  cohort, key = jnp.arange(clients), jax.random.key(0)
  began = time.perf_counter()
  program = jax.jit(round_fn).lower(*states, cohort, data, key).compile()
  compilation = time.perf_counter() - began

  def seconds(examples):
    times, count = [], jnp.full(clients, examples, data.count.dtype)
    while len(times) < REPEATS or sum(times) < SECONDS:
      began = time.perf_counter()
      metrics = program(*states, cohort, data._replace(count=count), key)
      jax.block_until_ready(metrics)
      times.append(time.perf_counter() - began)
    return min(times)

  without, with_steps = seconds(0), seconds(size)
  return Speed(compilation, without, max(0.0, with_steps - without) / STEPS)
