"""Forward and backward passes of the networks, and some steps after them."""

import re

import goldens
import jax
import jax.numpy as jnp
import optax

from fedjax_pfl import local, personalize
from fedjax_pfl.models.task import make_task
from fedjax_pfl.types import Batch, ClientData
from players.settings import (
  KEY,
  as_given,
  case_task,
  model_name,
)


def play_forward(case):
  """Compare forward and backward, of small networks under both lowerings.

  Of large ones the products are compared, and XLA's own convolutions forward:
  every backward pass takes many seconds to compile.
  """
  check = (
    forward_of_generated if 'params' in case.settings else forward_of_clients
  )
  for lowering in ('lax', 'gemm'):
    check(case, lowering)
  if 'params' in case.settings:
    check_all_steps(case)  # under one lowering: 20 s of compilation each
    case.finish(inputs=('x', 'y', 'running_after_1/', 'logits_running'))
  else:
    case.finish()


def forward_of_clients(case, lowering):
  task = case_task(case, lowering)
  inputs = case.load(case['common'])
  params = as_given(case.subtree(inputs, 'init/'))
  number, i = map(int, re.findall(r'\d+', case['batch']))
  x, y = inputs['train_x'][i, :number], inputs['train_y'][i, :number]
  check_gradients(case, task, params, jnp.asarray(x), jnp.asarray(y))
  logits_of = jax.jit(task.logits)
  for i, images in enumerate(inputs['test_x']):
    logits = logits_of(params, jnp.asarray(images), jnp.ones(len(images)))
    case.check(f'test_logits/client{i}', logits)


def forward_of_generated(case, lowering):
  task, params, x, y = generated_task(case, lowering)
  case.check_tree('init', params)
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert size == case['parameters']
  if lowering == 'gemm':
    check_gradients(case, task, params, x, y)
  else:
    logits = jax.jit(task.logits)(params, x, jnp.ones(len(x)))
    case.check('logits', logits)


def generated_task(case, lowering):
  x, y = jnp.asarray(case.arrays['x']), jnp.asarray(case.arrays['y'])
  task = make_task(
    model_name(case),
    image_shape=x.shape[1:],
    num_classes=case['classes'],
    lowering=lowering,
  )
  return task, as_given(goldens.generated(case['params'])), x, y


def check_gradients(case, task, params, x, y):
  batch = Batch(x, y, jnp.ones(len(x)))

  @jax.jit
  def run(params, batch):
    loss, grads = jax.value_and_grad(task.loss)(params, batch, KEY(0))
    logits = task.logits(params, batch.x, batch.mask)
    return loss, grads, logits, task.features(params, batch.x, batch.mask)

  loss, grads, logits, features = run(params, batch)
  case.check('loss', loss)
  case.check('logits', logits)
  if 'features' in case.arrays:
    case.check('features', features)
  case.check_tree('grad', grads)


def check_all_steps(case):
  task, params, x, y = generated_task(case, 'auto')
  for part in ('full', 'body'):
    if f'steps_{part}/loss' in case.arrays:
      check_steps(case, task, params, x, y, part)


def check_steps(case, task, params, x, y, part):
  prefix = f'steps_{part}'
  text = case['arrays'][f'{prefix}/...']
  steps, rate, momentum = re.search(
    r'(\d+) steps .*?lr ([\d.]+), momentum ([\d.]+)', text
  ).groups()
  data = ClientData(x, y, jnp.arange(len(x)), jnp.array(len(x)))

  @jax.jit
  def run(params):
    params, info = local.fit(
      task.loss,
      params,
      data,
      KEY(0),
      tx=local.trainable(
        optax.sgd(float(rate), float(momentum)),
        personalize.part_mask(task, part),
      ),
      batching=local.Batching(len(x), int(steps), task.augment, False),
    )
    return params, info, task.logits(params, x, jnp.ones(len(x)))

  params, info, logits = run(params)
  case.check(f'{prefix}/loss', info.losses)
  case.check(f'{prefix}/logits', logits)
  case.check_tree(prefix, params)


PLAYS = {
  'forward and backward pass': play_forward,
  'forward and backward pass, 3 sgd steps': play_forward,
}
