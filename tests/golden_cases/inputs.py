"""The settings and inputs of a case as the package has them.

Compiling a client's whole training takes many times what running it takes, and
each method is a program of its own. So the cases run local training as a loop
in Python (`stepwise`) over a few small programs that they share (`compiled`):
the network's loss, its gradient, its outputs. That the compiled loop gives the
same is tested for every method in tests/algorithms/contract_test.py, and for
weighted FedAvg in rounds.py.
"""

import functools
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.types import Batch, ClientData
from fedjax_pfl.models import convnets
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.registry import make_task

KEY = jax.random.key  # nothing random is left in a case: any seed will do
BODY = ('conv1', 'conv2', 'fc1', 'fc2')  # of the narrow network


def training(case):
  rates = jnp.asarray(case['lr_per_round'], float)
  weighted = any(word in case['aggregation'] for word in ('n_i', 'train_n'))
  return local_training.LocalTraining(
    rounds=case['rounds'],
    epochs=case['local_epochs'],
    batch_size=case['batch_size'],
    learning_rate=lambda clock: rates[clock],
    momentum=case['momentum'],
    weight_decay=case['weight_decay'],
    shuffle=False,
    aggregation='examples' if weighted else 'uniform',
  )


def finetuning(case):
  """Return the fine-tuning of a case, if it has one of some epochs."""
  settings = case.get('personalization') or {}
  if not {'epochs', 'part'} <= {*settings}:
    return personalization.Finetuning()
  assert settings['weight_decay'] == 0
  return personalization.Finetuning(
    epochs=(settings['epochs'],),
    trainable=settings['part'],
    learning_rate=settings['lr'],
    momentum=settings['momentum'],
    batch_size=settings['batch_size'],
    shuffle=False,
  )


def clients_data(case):
  """Return the data of all clients for training, and for testing."""
  inputs = case.load(case['common'])
  sizes = case.get('train_sizes', case.get('train_n'))
  return (
    stack(inputs['train_x'], inputs['train_y'], sizes),
    stack(inputs['test_x'], inputs['test_y'], case.get('test_sizes')),
  )


def stack(x, y, sizes=None):
  clients, length = y.shape
  return ClientData(
    jnp.asarray(x).reshape(-1, *x.shape[2:]),
    jnp.asarray(y, jnp.int32).ravel(),
    jnp.arange(clients * length).reshape(clients, length),
    jnp.broadcast_to(jnp.asarray(sizes or length), clients),
  )


def of(data, i):
  """Return the data of client i."""
  return data._replace(index=data.index[i], count=data.count[i])


def client_rows(data, i):
  rows = data.index[i, : int(data.count[i])]
  return data.x[rows], data.y[rows]


def batch_of(x, y):
  return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(x)))


def given(case, prefix, arrays=None):
  """Return the parameters prefix/... of a case, or of other arrays."""
  tree = case.subtree(case.arrays if arrays is None else arrays, f'{prefix}/')
  return jax.tree.map(jnp.asarray, tree)


def start_params(case):
  start = case['start_params']
  return given(case, start['prefix'].rstrip('/'), case.load(start['file']))


def model_name(case):
  text = case['model'].lower()
  names = {'4conv': 'convnet4', '3conv': 'convnet3', 'mobilenet': 'mobilenet'}
  names |= {f'resnet{depth}': f'resnet{depth}' for depth in (10, 18, 50)}
  for word, name in names.items():
    if text.startswith(word):
      return name
  pytest.skip(f'{case["case"]}: the model {text} is not there yet')


def case_task(case, conv_impl='auto'):
  """Return the task of a case; it begins with the parameters given there."""
  inputs = case.load(case['common'])
  shape = inputs['train_x'].shape[2:]
  classes = inputs[f'init/{case.head}/bias'].size
  model, widths = 'narrow', ()
  if case['model'].startswith('narrow_simple_cnn'):
    widths = tuple(inputs[f'init/{name}/bias'].size for name in BODY)
  else:
    model = model_name(case)
  task = network(model, shape, classes, widths, conv_impl)
  init = given(case, 'init', inputs)
  return task._replace(init=lambda key: init)


@functools.cache  # cases of one network share its compiled functions
def network(model, shape, classes, widths, conv_impl):
  """Return the task of a network; widths are those of the narrow one."""
  sizes = {'image_shape': shape, 'num_classes': classes}
  if model == 'narrow':
    module = convnets.SimpleCNN(classes, widths)
    sizes |= {'conv_impl': conv_impl, 'batch_independent': True}
    return compiled(task_from_module(module, **sizes))
  return compiled(make_task(model, conv_impl=conv_impl, **sizes))


def compiled(task):
  """Return the task with functions that are compiled one by one."""
  value_and_grad = jax.jit(jax.value_and_grad(task.loss))

  @jax.custom_vjp
  def loss(params, batch, key):
    return value_and_grad(params, batch, key)[0]

  def backward(grads, scale):
    return jax.tree.map(lambda leaf: scale * leaf, grads), None, None

  loss.defvjp(value_and_grad, backward)
  return task._replace(
    features=jax.jit(task.features),
    logits=jax.jit(task.logits),
    loss=loss,
    train_outputs=jax.jit(task.train_outputs),
  )


def stepwise(fn):
  """Return fn with the loops of local training in Python."""

  def fori_loop(first, last, body, carry):
    for number in range(int(first), int(last)):
      carry = body(number, carry)
    return carry

  def run(*args):
    loops = SimpleNamespace(fori_loop=fori_loop)
    with (
      mock.patch.object(local_training, 'lax', loops),
      mock.patch.object(personalization, 'lax', loops),
    ):
      return fn(*args)

  return run
