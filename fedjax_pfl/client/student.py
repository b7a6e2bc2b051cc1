"""A client's own model beside a student, a small model that all share.

All clients begin with the same own model. The view `initial` is the student,
the view `personal` the own model, which is the field `own` of a client's state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.core.types import Array, Key, Params, Task


class Server(NamedTuple):
  round: Array
  params: Params  # of the student
  key: Array | tuple[()] = ()  # [2] bits of the key of the first own model


class Student(NamedTuple):
  """The view that predicts by the student."""

  params: Params
  rule = 'logits = network(x), of the architecture hp.student'


def first_key(server: Server) -> Key:
  """Return the key of the first own model."""
  return jax.random.wrap_key_data(server.key)


def with_student(algorithm: Algorithm, task: Task, student: Task) -> Algorithm:
  """Return a method of averaged models whose server has the student instead."""

  def init_server(rng):
    bits = jax.random.key_data(jax.random.fold_in(rng, 1))
    return Server(jnp.zeros((), jnp.int32), student.init(rng), bits)

  def predict(view, x, mask):
    if isinstance(view, Student):
      return student.logits(view.params, x, mask)
    return task.logits(view, x, mask)

  return algorithm._replace(
    init_server=init_server,
    download=lambda server, client: server._replace(key=()),
    aggregate=lambda server, up, senders: Server(
      *algorithm.aggregate(server, up, senders)[:2], server.key
    ),
    personalize=lambda server, client, data, rng: {
      'initial': Student(server.params),
      'personal': client.own,
    },
    predict=predict,
    global_model=lambda server: Student(server.params),
  )
