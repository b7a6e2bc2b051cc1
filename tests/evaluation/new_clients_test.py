"""What a client has that comes after training: three methods by hand.

The client has one batch, so that an epoch is one step on all its examples.
"""

import jax
import jax.numpy as jnp
import pytest
from helpers import (
  CLASSES,
  KEY,
  SHAPE,
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
CLOCK = 2  # the server's, at the end
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


def server_and_views(name, **hp):
  """Return the model of a server after two rounds, and the new client's."""
  (stage,) = build(name, TASK, **hp)
  algorithm = with_new_clients(stage).algorithm
  server = algorithm.init_server(KEY(3))
  moved = jax.tree.map(lambda leaf: 0.9 * leaf + 0.05, server.params)
  head = server.params['head']  # of a private head the server has the first
  if algorithm.global_model is None:
    moved = {**moved, 'head': head}
  server = server._replace(round=jnp.asarray(CLOCK), params=moved)
  assert algorithm.init_client(server, NEW, KEY(1)) == ()
  return moved, jax.jit(algorithm.personalize)(server, (), NEW, KEY(9))


def test_fedavg_gives_its_model_which_is_fine_tuned():
  w, views = server_and_views('fedavg')
  assert_close(views['initial'], w)
  for view, steps in (('finetuned_1', 1), ('finetuned', 2)):
    assert_close(views[view], sgd(w, steps, 0.1, 0.9))


def test_fedrep_fits_a_head_to_the_common_body():
  w, views = server_and_views('fedrep')
  eta = TRAIN.learning_rate(0)  # of the first round
  fitted = sgd(w, 2, eta, 0.5, DECAY, frozen='body')
  assert abs(fitted['head']['kernel'] - w['head']['kernel']).max() > 1e-3
  assert_close(views['initial'], fitted)


def test_ditto_trains_a_model_near_the_mean():
  w, views = server_and_views('ditto')
  assert_close(views['initial'], w)
  eta = TRAIN.learning_rate(0)  # of the first round
  assert_close(views['personal'], sgd(w, 2, eta, 0.0, DECAY, pull=w))


def test_a_client_without_examples_has_what_the_server_has():
  (stage,) = build('ditto', TASK)
  algorithm = with_new_clients(stage).algorithm
  server = algorithm.init_server(KEY(3))
  nobody = NEW._replace(count=jnp.zeros_like(NEW.count))
  views = jax.jit(algorithm.personalize)(server, (), nobody, KEY(9))
  assert_close(views['personal'], server.params)
  x, mask = jnp.zeros((2, *SHAPE)), jnp.ones(2)
  logits = algorithm.predict(views['personal'], x, mask)
  assert logits.shape == (2, CLASSES)
