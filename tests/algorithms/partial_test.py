"""With the right patterns, `partial` is FedPer, LG-FedAvg, FedRep, or LoRA."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import (
  CLASSES,
  KEY,
  SHAPE,
  TRAIN,
  assert_close,
  build,
  client_of,
  long,
  make_data,
  make_task,
  play,
  refused,
)

from configs import digits
from fedjax_pfl.core import trees
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.rounds import begin, make_round, stage_shapes
from fedjax_pfl.models.lora import with_lora
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.perceptrons import MLP
from fedjax_pfl.training.build import build_experiment

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
      {**SIMULTANEOUS, 'personal': 'body/*'},
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


@pytest.mark.parametrize('order', ['alternating', long('simultaneous')])
def test_frozen_leaves_stay_as_they_begin(order):
  """In training with weight decay, too, and in fine-tuning."""
  (stage,) = build('partial', shared='body/bias', order=order)
  first, *_ = play((stage,), DATA, rounds=0)
  server, clients, _ = play((stage,), DATA)
  views = jax.jit(stage.algorithm.personalize)(
    server, trees.gather(clients, 0), client_of(DATA, 0), KEY(3)
  )
  for params in (server.params, views['finetuned']):
    assert (params['body']['kernel'] == first.params['body']['kernel']).all()
    assert (params['body']['bias'] != first.params['body']['bias']).all()
  assert clients['body'] == {'kernel': None, 'bias': None}


def test_the_loss_is_the_mean_over_the_steps_of_both_parts():
  still = PLAIN._replace(learning_rate=optax.constant_schedule(0.0))
  task = make_task(noise=0)
  losses = [
    play(build('partial', task, train=still, order=order), DATA)[2][-1]['loss']
    for order in ('alternating', 'simultaneous')
  ]
  assert_close(*losses)


LORA, HEAD = ['lora_a', 'lora_b'], ['bias', 'kernel']


@pytest.mark.parametrize(
  ('how', 'sent', 'kept'),
  [
    ({'shared': '*/lora_*'}, LORA, HEAD),
    ({'shared': '*/lora_*, head/*', 'personal': ()}, [*HEAD, *LORA], []),
    ({'shared': '*/lora_b'}, ['lora_b'], HEAD),  # FFA-LoRA
    (
      {'shared': '*/lora_a', 'personal': '*/lora_b, head/*'},  # FedSA-LoRA
      ['lora_a'],
      [*HEAD, 'lora_b'],
    ),
  ],
)
def test_uploads_are_adapters_alone(how, sent, kept):
  """Of any model; what is frozen is sent once."""
  config = digits.get_config('partial').to_dict()
  one = build_experiment({**config, 'lora_rank': 2, 'hp': how})
  ((stage, server, clients),) = stage_shapes(one.stages, one.train)
  found = communication.messages(stage, server, clients, one.train)

  def words(tree):
    return sorted({name.split('/')[-1] for name in trees.leaf_names(tree)})

  assert (words(found.up), words(found.state)) == (sent, kept)
  sizes = communication.sizes_of(found)
  assert sizes.up == sizes.down - 4 < sizes.initial / 10  # and the clock
  assert sizes.initial == trees.num_bytes(server.params) - sum(sizes[:2])


def test_clients_side_by_side_have_one_frozen_kernel():
  """No loop of the round has one for each of the five: [5, 4, 64]."""
  task = task_from_module(
    with_lora(MLP(CLASSES), rank=2), image_shape=SHAPE, num_classes=CLASSES
  )
  (stage,) = build('partial', task, shared='*/lora_*')
  states = jax.eval_shape(lambda: begin(stage, DATA, KEY(1)))
  round_fn = make_round(stage.algorithm, clients_per_chunk=5, mesh=None)
  args = *states, jnp.arange(5), DATA, KEY(2)
  text = jax.jit(lambda *args: round_fn(*args)).lower(*args).as_text()
  loops = [line for line in text.splitlines() if 'stablehlo.while' in line]
  assert any('tensor<4x64xf' in line for line in loops)
  assert not any('tensor<5x4x64xf' in line for line in loops)


@pytest.mark.parametrize(
  ('how', 'words'),
  [
    ({'personal': 'conv9/*'}, 'hp.personal: got'),
    ({'personal': ('*',)}, 'hp.personal: got'),
    ({'frozen': 'head/*, conv9'}, 'hp.frozen: got'),
    ({'shared': 'head/*'}, 'hp.shared: got'),  # they are personal
    ({'personal': ()}, 'hp.shared: got'),  # all would be shared
  ],
)
def test_patterns_select_some_leaves_and_not_all(how, words):
  assert refused(partial(build, 'partial', **how)).startswith(words)
