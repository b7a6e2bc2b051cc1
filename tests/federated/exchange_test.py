"""Messages about changes around any method: the frame alone changes nothing."""

import jax
import jax.numpy as jnp
import pytest
from helpers import TRAIN, assert_close, build, every_method, make_data, play

from fedjax_pfl.federated.communication import messages, sizes_of
from fedjax_pfl.federated.exchange import exchanging
from fedjax_pfl.federated.rounds import stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()


def size(tree):
  return sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(tree))


def frame(stage):
  return exchanging(
    stage,
    'frame',
    send=lambda change, memory, rng: (change, memory, {'size': size(change)}),
    receive=lambda changes, senders, value: (changes, senders, value),
  )


@every_method(2)
def test_what_is_sent_as_it_is_changes_no_method(name):
  stages = build(name)
  want, clients, _ = play(stages, DATA)
  got, own, _ = play([frame(stage) for stage in stages], DATA)
  assert_close((*got[:-1],), (*want,))
  assert_close(own, clients)


@every_method(2)
def test_bytes_are_those_of_the_method(name):
  stages = build(name)
  pairs = zip(
    stage_shapes(stages, DATA),
    stage_shapes([frame(stage) for stage in stages], DATA),
    strict=True,
  )
  for plain, framed in pairs:
    assert sizes_of(messages(*plain, DATA)) == sizes_of(messages(*framed, DATA))


@pytest.mark.parametrize('name', ['fedper', 'fedbn'])
def test_a_model_is_sent_as_its_change(name):
  """It is 0 where nothing is learned."""
  still = TRAIN._replace(learning_rate=lambda clock: 0.0 * clock)
  for train, moves in ((still, False), (TRAIN, True)):
    stages = [frame(stage) for stage in build(name, train=train)]
    _, _, (metrics, *_) = play(stages, DATA)
    assert (metrics['size'] > 0).any() == moves
