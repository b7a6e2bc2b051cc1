"""Train the server on data of its own (FedBABU paper, tables 2 and 21).

  w <- aggregate(w_1, ..., w_C)
  w <- SGD_1(w; shared examples)      one epoch on 'full', or on the 'body'

An option of any method whose server has a complete model: it becomes the
`post_aggregate` of its stage. floor(p P) of the P training examples are shared,
drawn once from all of them; clients still train on theirs. Batch size,
momentum, decay and transform are the clients', the learning rate is that of the
same round, and the momentum buffer is zero in every round.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.client import local_training, optimisers
from fedjax_pfl.core.algorithm import Stage, as_aggregated
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.trees import kinds, part_mask
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.data.held_out import generator

STREAM = 1000  # of the seed; the partition spawns its own from 0 on


def share(
  stages: tuple[Stage, ...],
  task: Task,
  train: local_training.LocalTraining,
  *,
  fraction: float,
  part: str,
  seed: int,
) -> tuple[Stage, ...]:
  """Return the method with a server that trains after every aggregation.

  With part 'body' the head of FedBABU stays fixed (table 21); with 'full' the
  server trains it.
  """
  _check_server(stages, task, fraction)
  mask = part_mask(task, part, 'server_trainable')
  one_epoch = train._replace(epochs=1)

  def post_aggregate(server, data, rng):
    # The rows depend on the number of examples only, not on the examples.
    rows = drawn_rows(seed, fraction, data.y.shape[0])
    shared = ClientData(
      data.x, data.y, jnp.asarray(rows, jnp.int32), jnp.asarray(rows.size)
    )
    clock = server.round - 1  # aggregate has incremented it
    params, _ = one_epoch.fit(
      task,
      server.params,
      shared,
      rng,
      clock,
      tx=optimisers.freeze_except(train.sgd(clock), mask),
    )
    return server._replace(params=params)

  (stage,) = stages
  algorithm = stage.algorithm._replace(post_aggregate=post_aggregate)
  return (stage._replace(algorithm=algorithm, knows_seed=True),)


def shared_rows(seed: int, fraction: float, size: int) -> np.ndarray:
  """Return the rows that the server has; there has to be one."""
  Rule(
    lambda value: _number(value, size),
    f'0, or at least 1/{size}: one of the {size} examples',
    'a percentage, or fewer examples than before',
  ).check('server_data_fraction', fraction)
  return drawn_rows(seed, fraction, size)


def drawn_rows(seed: int, fraction: float, size: int) -> np.ndarray:
  """Return floor(p P) rows, uniform without replacement, from the seed.

  Of a pool of one, on which a method is traced before its data are read, 1.
  """
  number = max(1, _number(fraction, size))
  return generator(seed, STREAM).permutation(size)[:number]


def _number(fraction: float, size: int) -> int:
  return math.floor(fraction * size + 1e-9)  # 0.29 * 100 is 28.999..


def _check_server(stages, task, fraction) -> None:
  """Raise BadInput if the server has no model that could be trained."""
  key = jax.eval_shape(jax.random.key, 0)
  model = jax.eval_shape(task.init, key)
  algorithm = stages[0].algorithm
  server = jax.eval_shape(algorithm.init_server, key)
  fixed = jax.eval_shape(stages[0].initial_broadcast, server)
  if len(stages) > 1:
    cause = f'a method of {len(stages)} stages, each with rates of its own'
  elif kinds(getattr(server, 'params', ())) != kinds(model):
    cause = 'a method whose server has parts of a model, or several models'
  elif algorithm.global_model is None:
    cause = 'a method whose clients keep a part of the model, or all of it'
  elif jax.tree.leaves(fixed):
    cause = 'a method with a frozen part, which each client gets once'
  elif algorithm.post_aggregate is not as_aggregated:
    cause = 'a method whose server has a step of its own after each round'
  else:
    return
  raise bad_input(
    'server_data_fraction',
    got=fraction,
    expected='0 for this method: its server has no complete model `params` '
    'that could be trained at the learning rate of the round',
    cause=cause,
  )
