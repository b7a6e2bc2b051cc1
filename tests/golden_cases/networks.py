"""Forward and backward passes of the networks, and some steps after them."""

import re

import goldens
import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import optimisers
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.models.registry import make_task
from golden_cases.inputs import KEY, batch_of


def check_forward(case):
  """Compare forward and backward, with convolutions as products.

  Of large networks XLA's own convolutions are compared forward, too: every
  backward pass takes many seconds to compile.
  """
  if 'params' in case.settings:
    forward_of_generated(case)
  else:
    forward_of_clients(case)


def forward_of_clients(case):
  task, inputs = case.task(), case.common
  params = task.init(KEY(0))
  number, i = map(int, re.findall(r'\d+', case['batch']))
  x, y = inputs['train_x'][i, :number], inputs['train_y'][i, :number]
  check_gradients(case, make_run(task, x, y), params)
  logits_of = jax.jit(task.logits)
  for i, images in enumerate(inputs['test_x']):
    logits = logits_of(params, jnp.asarray(images), jnp.ones(len(images)))
    case.check(f'test_logits/client{i}', logits)


def forward_of_generated(case):
  params = jax.tree.map(jnp.asarray, goldens.generated(case['params']))
  case.check('init', params)
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert size == case['parameters']
  x, y = case.given('x', 'y')
  running = ('running_after_1/', 'logits_running')  # statistics: not ours
  case.given(*(key for key in case.arrays if key.startswith(running)))
  logits_of = jax.jit(generated_task(case, 'lax').logits)
  case.check('logits', logits_of(params, jnp.asarray(x), jnp.ones(len(x))))
  task = generated_task(case, 'gemm')
  run = make_run(task, x, y)
  check_gradients(case, run, params)
  for part in ('full', 'body'):
    if f'steps_{part}/loss' in case.digests:
      check_steps(case, run, params, part_mask(task, part), part)


def generated_task(case, conv_impl):
  return make_task(
    case.model(),
    image_shape=case.arrays['x'].shape[1:],
    num_classes=case['classes'],
    conv_impl=conv_impl,
  )


def make_run(task, x, y):
  """Return params -> (loss, gradients, logits, features) of one batch."""
  batch = batch_of(x, y)

  @jax.jit
  def run(params, batch):
    loss, grads = jax.value_and_grad(task.loss)(params, batch, KEY(0))
    logits = task.logits(params, batch.x, batch.mask)
    return loss, grads, logits, task.features(params, batch.x, batch.mask)

  return lambda params: run(params, batch)


def check_gradients(case, run, params):
  loss, grads, logits, features = run(params)
  case.check('loss', loss)
  case.check('logits', logits)
  case.check('features', features)
  case.check('grad', grads)


def check_steps(case, run, params, mask, part):
  """Compare some steps, with the compiled gradient that is there already."""
  prefix = f'steps_{part}'
  text = case['arrays'][f'{prefix}/...']
  steps, rate, momentum = re.search(
    r'(\d+) steps .*?lr ([\d.]+), momentum ([\d.]+)', text
  ).groups()
  tx = optimisers.freeze_except(optax.sgd(float(rate), float(momentum)), mask)

  @jax.jit
  def move(params, grads, opt_state):
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

  losses, opt_state = [], tx.init(params)
  for _ in range(int(steps)):
    loss, grads, _, _ = run(params)
    params, opt_state = move(params, grads, opt_state)
    losses.append(loss)
  case.check(f'{prefix}/loss', losses)
  case.check(f'{prefix}/logits', run(params)[2])
  case.check(prefix, params)


CHECKS = {
  'forward and backward pass': check_forward,
  'forward and backward pass, 3 sgd steps': check_forward,
}
