"""With the hyperparameters of its FEDAVG_EQUIVALENT, a method is FedAvg."""

import functools

import jax
import jax.numpy as jnp
import pytest
from helpers import TRAIN, assert_close, build, every_method, make_data, play

from fedjax_pfl.algorithms import load

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
TRAININGS = {
  'examples': TRAIN,
  'uniform': TRAIN._replace(aggregation='uniform', weight_decay=0.0),
}


@functools.cache
def fedavg(weights):
  server, _, _ = play(build('fedavg', train=TRAININGS[weights])[:1], DATA, 3)
  return server.params


@every_method()
def test_server_is_fedavgs(name):
  check(name, 'examples')


@every_method(0)
def test_server_is_fedavgs_with_uniform_weights(name):
  check(name, 'uniform')


def check(name, weights):
  """The first stage's params after three rounds."""
  when = load(name).FEDAVG_EQUIVALENT
  if when is None:
    pytest.skip('never FedAvg')
  hp = {'train': TRAININGS[weights], **when}
  server, _, _ = play(build(name, **hp)[:1], DATA, 3)
  want = fedavg(weights)
  # A server with models of several clusters has one of them then.
  got = jax.tree.map(lambda a, b: a.reshape(b.shape), server.params, want)
  assert_close(got, want)


def test_three_rounds_of_fedavg_change_every_leaf():
  """Without this, a method that never learns could equal FedAvg."""
  server, _, _ = play(build('fedavg')[:1], DATA, 0)
  for start, end in (
    (server.params[part][leaf], fedavg('examples')[part][leaf])
    for part in ('body', 'head')
    for leaf in ('kernel', 'bias')
  ):
    assert jnp.abs(start - end).max() > 1e-2
