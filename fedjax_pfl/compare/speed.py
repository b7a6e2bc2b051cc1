"""How fast this machine trains a model: timed once, then stored.

FedAvg's round of one client, or of as many as run side by side, is compiled,
and timed without a step and with a few, on blank examples. The file is in the
user's cache, named by a hash of the machine, the model and its inputs.
"""

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core import atomic_files, json_text, trees
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.runs import result_file
from fedjax_pfl.runs.identity import provenance
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import build_method
from fedjax_pfl.training.compile_cache import machine
from fedjax_pfl.training.frozen_features import head_of

STEPS = 4
# The fastest call counts: other processes only slow it down.
REPEATS, SECONDS = 2, 1.0


class Speed(NamedTuple):
  """Seconds: of a compilation, of a client without steps, and of a step."""

  compilation: float
  client: float
  step: float


def speed_of(
  settings: Settings, side_by_side: int, log: Callable[[str], None]
) -> Speed:
  """Return the speed of clients that run side by side with this model."""
  shape = build_method.peek_shape(settings.data)
  device = jax.devices()[0].device_kind
  program = settings.model, settings.data.loss, settings.train.batch_size
  known = machine(), device, jax.__version__, provenance()['version']
  content = [*known, side_by_side, repr(program), repr(shape)]
  name = f'{result_file.digest(content)[:16]}.json'
  with contextlib.suppress(OSError, ValueError, TypeError):
    stored = (atomic_files.cache_root() / 'speeds' / name).read_bytes()
    return Speed(**json_text.parse_object(stored))
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
  task, shape = head_of(settings, task, shape)
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
      args = *states, cohort, data._replace(count=count), key
      jax.block_until_ready(program(*args))
      times.append(time.perf_counter() - began)
    return min(times)

  without, with_steps = seconds(0), seconds(size)
  return Speed(compilation, without, max(0.0, with_steps - without) / STEPS)
