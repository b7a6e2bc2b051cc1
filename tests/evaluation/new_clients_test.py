"""What a client has that comes after training: two methods by hand.

The client has one batch, so that an epoch is one step on all its examples.
"""

import jax
import jax.numpy as jnp
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  build,
  client_of,
  make_data,
  make_task,
)

from fedjax_pfl.core.types import Batch
from fedjax_pfl.evaluation.new_clients import with_new_clients

TASK = make_task(noise=0.0)
NEW = client_of(make_data((3, 4, 2)), 1)  # 4 examples: a whole batch
DECAY = TRAIN.weight_decay

pytestmark = pytest.mark.usefixtures('float64', 'quick_compiler')


@jax.jit
def grad(params):
  rows = NEW.index[:4]
  batch = Batch(TASK.normalise(NEW.x[rows], None), NEW.y[rows], jnp.ones(4))
  return jax.grad(TASK.loss)(params, batch, KEY(0))


def sgd(params, steps, eta, momentum, decay=0.0, frozen='', pull=None):
  """Return params after plain steps, in Python."""
  m = jax.tree.map(jnp.zeros_like, params)
  for _ in range(steps):
    g = jax.tree.map(lambda g, p: g + decay * p, grad(params), params)
    if pull is not None:
      g = jax.tree.map(lambda g, v, w: g + 0.75 * (v - w), g, params, pull)
    m = jax.tree.map(lambda m, g: momentum * m + g, m, g)
    params = {
      part: leaf
      if part == frozen
      else jax.tree.map(lambda p, m: p - eta * m, leaf, m[part])
      for part, leaf in params.items()
    }
  return params


def algorithm_and_server(name):
  """Return a method for new clients, and a server after two rounds."""
  (stage,) = build(name, TASK)
  algorithm = with_new_clients(stage).algorithm
  server = algorithm.init_server(KEY(3))
  moved = jax.tree.map(lambda leaf: 0.9 * leaf + 0.05, server.params)
  if algorithm.global_model is None:  # of a private head it has the first
    moved = {**moved, 'head': server.params['head']}
  assert algorithm.init_client(server, NEW, KEY(1)) == ()
  return algorithm, server._replace(round=jnp.asarray(2), params=moved)


@pytest.mark.parametrize('name', ['fedrep', 'ditto'])
def test_a_new_client_does_what_one_does_in_the_first_round(name):
  algorithm, server = algorithm_and_server(name)
  personalize, w = jax.jit(algorithm.personalize), server.params
  eta = TRAIN.learning_rate(0)  # of the first round
  views = personalize(server, (), NEW, KEY(9))
  if name == 'fedrep':  # fits a head to the common body
    fitted = sgd(w, 2, eta, 0.5, DECAY, frozen='body')
    assert abs(fitted['head']['kernel'] - w['head']['kernel']).max() > 1e-3
    assert_close(views['initial'], fitted)
  if name == 'ditto':  # trains a model near the mean
    assert_close(views['initial'], w)
    assert_close(views['personal'], sgd(w, 2, eta, 0.0, DECAY, pull=w))
