"""Messages about changes around any method: the frame alone changes nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
  play,
)

from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.exchange import exchanging
from fedjax_pfl.core import trees
from fedjax_pfl.evaluation.new_clients import first_state
from fedjax_pfl.federated.communication import messages, sizes_of
from fedjax_pfl.federated.rounds import stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA, TOPK = make_data(), Compression('topk', share=0.1)


def size(tree):
  return sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(tree))


def frame(stage):
  return exchanging(
    stage,
    'frame',
    send=lambda change, memory, rng: (change, memory, {'size': size(change)}),
    receive=lambda changes, senders, value: (changes, senders, value),
  )


def test_the_memory_is_of_a_change_on_what_rounds_train_on():
  """FedConcat's last rounds, on features; for clients that come later, too."""
  plain = make_task(noise=0, normalised=False)
  plain = plain._replace(augment=plain.normalise, batch_independent=True)
  stages = around(build('fedconcat', plain), Around(compression=TOPK))
  *_, (stage, server, clients) = stage_shapes(stages, DATA)
  first = partial(first_state, stage)
  own = jax.eval_shape(first, server, client_of(DATA, 0), KEY(0))
  row = jax.eval_shape(lambda rows: trees.gather(rows, 0), clients)
  assert trees.kinds(own) == trees.kinds(row)


@pytest.mark.long
@every_method()
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


@every_method(1, ['fedbn', 'fedper'])
def test_a_model_is_sent_as_its_change(name):
  """It is 0 where nothing is learned."""
  still = TRAIN._replace(learning_rate=lambda clock: 0.0 * clock)
  for train, moves in ((still, False), (TRAIN, True)):
    stages = [frame(stage) for stage in build(name, train=train)]
    _, _, (metrics, *_) = play(stages, DATA)
    assert (metrics['size'] > 0).any() == moves
