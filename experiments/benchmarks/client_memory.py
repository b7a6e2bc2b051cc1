"""Memory of the models that all registered clients keep, and of a process."""

import resource
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data import Synthetic, make_synthetic, stack_clients
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.models.task import make_task

BATCH, STEPS, IMAGE, NUM_CLASSES = 20, 2, (32, 32, 3), 10
GIB = 2**30


def measure(
  method: str, model: str, num_clients: int, cohort: int
) -> Iterator[str]:
  """Run one round of every stage; yield lines of text with the memory."""
  task = make_task(model, image_shape=IMAGE, num_classes=NUM_CLASSES)
  clients = run_rounds(method, task, num_clients, cohort)
  params = jax.eval_shape(task.init, jax.random.key(0))
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  yield f'{method}, {model} of {count:,} parameters'
  yield f'{num_clients:,} clients keep {trees.num_bytes(clients) / GIB:.2f} GiB'
  for device in jax.devices()[:1]:
    stats = device.memory_stats()
    if stats:
      yield f'peak on {device}: {stats["peak_bytes_in_use"] / GIB:.2f} GiB'
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  yield f'peak of the process: {peak / GIB:.2f} GiB'


def run_rounds(method: str, task, num_clients: int, cohort: int):
  """Return the states of all clients after one round of every stage."""
  module, data = load(method), make_clients(num_clients)
  train = local_training.LocalTraining(rounds=2, epochs=1, batch_size=BATCH)
  stages = module.build(task, module.HParams(train=train))
  key = jax.random.key(0)
  server, clients = begin(stages[0], data, key)
  for number, stage in enumerate(stages):
    if number:
      server, clients = stage.initialize(server, clients, data)
    round_fn = make_round(stage.algorithm)
    ids = jnp.arange(min(cohort, num_clients))
    ready = stage.prepare_data(server, data)
    server, clients, _ = round_fn(server, clients, ids, ready, key)
  return jax.block_until_ready((server, clients))[1]


def make_clients(num_clients: int) -> ClientData:
  """Return clients that all hold the same few images."""
  size = BATCH * STEPS
  images = make_synthetic(Synthetic(IMAGE, NUM_CLASSES, train_size=size)).train
  return stack_clients(images, [np.arange(size)] * num_clients)
