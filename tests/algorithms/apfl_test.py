"""APFL: what its cases do not say."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  KEY,
  TRAIN,
  build,
  client_of,
  from_lists,
  make_data,
  make_task,
)

from fedjax_pfl.algorithms import apfl
from fedjax_pfl.client import local_training
from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()


def train_once(algorithm, data):
  server = algorithm.init_server(KEY(0))
  client = algorithm.init_client(server, data, KEY(0))
  down = algorithm.download(server, client)
  return algorithm.local_update(down, client, data, KEY(1))


def test_two_steps_by_hand():
  """L = w^2 / 2; eta = beta = alpha = 1/2; decay 1/4; w = v = 8.

  step 1   w:      g = 8 + 8/4 = 10       m = 10            8 - 5      = 3
           v:      g = 8/2 + 8/4 = 6      m = 6             8 - 3      = 5
           alpha:  g = (8 - 8) 8 = 0                                     1/2
  step 2   w:      g = 3 + 3/4 = 3.75     m = 5 + 3.75      3 - 4.375  = -1.375
           v:      g = 4/2 + 5/4 = 3.25   m = 3 + 3.25      5 - 3.125  = 1.875
           alpha:  g = (5 - 3) 4 = 8      1/2 - 4, that is               0
  """
  weight = {'body': {'w': jnp.array(8.0)}}
  task = make_task()._replace(
    init=lambda key: weight,
    loss=lambda params, batch, key: params['body']['w'] ** 2 / 2,
    is_head={'body': {'w': False}},
  )
  train = local_training.LocalTraining(
    epochs=2,
    learning_rate=optax.constant_schedule(0.5),
    momentum=0.5,
    weight_decay=0.25,
  )
  (stage,) = build('apfl', task, train=train)
  data = client_of(from_lists([[0.0]]), 0)
  client, params, metrics = train_once(stage.algorithm, data)
  assert params['body']['w'] == -1.375
  assert client.private['body']['w'] == 1.875
  assert client.alpha == 0
  assert metrics['losses'].tolist() == [32.0, 4.5]
  assert metrics['mixed_losses'].tolist() == [32.0, 8.0]
  assert metrics['alphas'].tolist() == [0.5, 0.5]
  assert metrics['num_steps'] == 4


@pytest.mark.parametrize(
  'order, adapt, moves',
  [
    ('simultaneous', 'every_step', 3),
    ('sequential', 'first_step', 1),
    *(
      pytest.param(*case, marks=pytest.mark.long)
      for case in (
        ('sequential', 'every_step', 3),
        ('simultaneous', 'first_step', 1),
        ('simultaneous', 'never', 0),
        ('sequential', 'never', 0),
      )
    ),
  ],
)
def test_steps_in_which_alpha_moves(order, adapt, moves):
  """Of the three batches of a client whose v is not w."""
  train = TRAIN._replace(epochs=1, batch_size=BATCH)
  hp = {'train': train, 'order': order, 'adapt': adapt, 'alpha': 0.25}
  (stage,) = build('apfl', **hp)
  algorithm, data = stage.algorithm, client_of(DATA, 4)
  server = algorithm.init_server(KEY(0))
  client = apfl.Client(algorithm.init_server(KEY(1)).params, jnp.array(0.25))
  client, _, metrics = algorithm.local_update(server, client, data, KEY(2))
  alphas = np.append(metrics['alphas'], client.alpha)
  assert alphas[0] == 0.25
  assert ((alphas[1:] != alphas[:-1]) == (np.arange(3) < moves)).all()
  assert metrics['num_steps'] == 6 and metrics['losses'].shape == (3,)


def test_released_has_biases_of_kernels_once():
  """Those of BatchNorm exist twice, like its scales."""
  params = {
    'conv': {'kernel': jnp.ones(2), 'bias': jnp.ones(2)},
    'norm': {'scale': jnp.ones(2), 'bias': jnp.ones(2)},
  }
  task = make_task()._replace(
    init=lambda key: params,
    is_head={
      'conv': {'kernel': False, 'bias': False},
      'norm': {'scale': False, 'bias': False},
    },
  )
  (stage,) = build('apfl', task, protocol='released')
  server = stage.algorithm.init_server(KEY(0))
  client = stage.algorithm.init_client(server, DATA, KEY(0))
  names = trees.leaf_names(client.private)
  assert names == ['conv/kernel', 'norm/bias', 'norm/scale']
  assert client.alpha == 0.25


@pytest.mark.parametrize(
  'field, value, sentence',
  [
    ('alpha', 1.5, r'hp\.alpha: got 1\.5.*from 0 to 1.*a percentage'),
    ('alpha', float('nan'), r'hp\.alpha: got nan'),
    ('adapt', 'first_stp', r'hp\.adapt: got.*did you mean first_step\?'),
    ('order', 'parallel', r"hp\.order: got 'parallel'.*sequential"),
    ('protocol', 'relased', r'hp\.protocol: got.*did you mean released\?'),
    ('private_decay', -1e-4, r'hp\.private_decay: got -0\.0001.*a sign'),
  ],
)
def test_bad_settings_are_refused(field, value, sentence):
  with pytest.raises(BadInput, match=sentence):
    build('apfl', **{field: value})
