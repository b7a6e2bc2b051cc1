"""With the right patterns, `partial` is FedPer, LG-FedAvg and FedRep."""

from functools import partial

import jax
import optax
import pytest
from helpers import (
  TRAIN,
  assert_close,
  build,
  make_data,
  make_task,
  play,
  refused,
)

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
PLAIN = TRAIN._replace(momentum=0.0, shuffle=False)
RATE = PLAIN._replace(learning_rate=optax.constant_schedule(0.1))
SIMULTANEOUS = {'order': 'simultaneous'}


@pytest.mark.parametrize(
  ('other', 'theirs', 'ours', 'train'),
  [
    ('fedper', {}, SIMULTANEOUS, TRAIN),
    (
      'lg_fedavg',
      {'train_fedavg': False, 'learning_rate': 0.1},
      {**SIMULTANEOUS, 'personal': ('body/*',)},
      RATE,
    ),
    (
      'fedrep',
      {'head_epochs': 3, 'body_epochs': TRAIN.epochs, 'momentum': 0.0},
      {'personal_epochs': 3},
      PLAIN,
    ),
  ],
)
def test_it_is(other, theirs, ours, train):
  task = make_task(noise=0)
  want = play(build(other, task, train=train, **theirs), DATA)
  got = play(build('partial', task, train=train, **ours), DATA)
  assert_close(jax.tree.leaves(got[:2]), jax.tree.leaves(want[:2]))


@pytest.mark.parametrize('pattern', ['conv9/*', '*'])
def test_patterns_select_some_leaves_and_not_all(pattern):
  text = refused(partial(build, 'partial', personal=(pattern,)))
  assert text.startswith('hp.personal: got')
