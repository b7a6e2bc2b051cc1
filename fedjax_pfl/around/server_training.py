"""Train the server on data of its own (FedBABU paper, tables 2 and 21).

  w <- aggregate(w_1, ..., w_C)
  w <- SGD_1(w; shared examples)      one epoch on 'full', or on the 'body'

Also in a round in which all clients fail. floor(p P) of the P training examples
are shared, drawn once; clients still train on theirs. Batch size, momentum,
decay and transform are the clients', the learning rate is that of the round,
and the momentum buffer is zero in every round.
"""

import math
from functools import partial

import jax
import numpy as np

from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.client import local_training, optimisers
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.rules import Rule, one_of, share
from fedjax_pfl.core.trees import kinds, part_mask
from fedjax_pfl.core.types import Task
from fedjax_pfl.data.held_out import generator

STREAM = 1000  # of the seed; the partition spawns its own from 0 on


@record('server_')
class ServerTraining:
  """What the server trains, on which share of the examples.

  Args:
    fraction: share of all training examples that the server trains on
    part: what the server trains, for one epoch a round
  """

  fraction: float = field(0.0, share(), name='server_data_fraction')
  part: str = field(
    'full',
    one_of(('full', 'body')),
    needs=('server_data_fraction', 0.05),
    name='server_trainable',
  )
  task: Task | None = None
  train: local_training.LocalTraining | None = None
  seed: int = 0

  def __bool__(self) -> bool:
    return self.fraction > 0


def trained(stage: Stage, training: ServerTraining, stages: int = 1) -> Stage:
  """Return the stage with a server that trains after every aggregation.

  With part 'body' the head of FedBABU stays fixed (table 21); with 'full' the
  server trains it. stages: how many the method has.
  """
  _check_server(stage, training, stages)
  method = stage.algorithm
  mask = part_mask(training.task, training.part, 'server_trainable')
  one_epoch = training.train._replace(epochs=1)

  def aggregate(server, up, senders):
    clock = server.round
    server = method.aggregate(server, up, senders)
    params, _ = one_epoch.fit(
      training.task,
      server.params,
      senders.data,
      senders.rng,
      clock,
      tx=optimisers.freeze_except(training.train.sgd(clock), mask),
    )
    return server._replace(params=params)

  rows = partial(drawn_rows, training.seed, training.fraction)
  algorithm = replaced(stage, aggregate=aggregate).algorithm
  return stage._replace(algorithm=algorithm._replace(server_rows=rows))


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


def _check_server(stage: Stage, training: ServerTraining, stages: int) -> None:
  """Raise BadInput if the server has no model that could be trained."""
  key = jax.eval_shape(jax.random.key, 0)
  model = jax.eval_shape(training.task.init, key)
  server = jax.eval_shape(stage.algorithm.init_server, key)
  fixed = jax.eval_shape(stage.initial_broadcast, server)
  if stages > 1:
    cause = f'a method of {stages} stages, each with rates of its own'
  elif kinds(getattr(server, 'params', ())) != kinds(model):
    cause = 'a method whose server has parts of a model, or several models'
  elif stage.algorithm.global_model is None:
    cause = 'a method whose clients keep a part of the model, or all of it'
  elif jax.tree.leaves(fixed):
    cause = 'a method with a frozen part, which each client gets once'
  else:
    return
  raise bad_input(
    'server_data_fraction',
    got=training.fraction,
    expected='0 for this method: its server has no complete model `params` '
    'that could be trained at the learning rate of the round',
    cause=cause,
  )
