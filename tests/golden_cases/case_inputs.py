"""The settings and inputs of a case as the package has them."""

import functools

import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.models import convnets
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.registry import make_task
from golden_cases.python_loops import compiled

KEY = jax.random.key  # nothing random is left in a case: any seed will do


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


def finetuning_settings(case):
  settings = case.settings.get('personalization')
  if settings is None:
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
  inputs = case.load(case['common'])
  length = inputs['train_x'].shape[1]
  sizes = case.settings.get('train_sizes', case.settings.get('train_n'))
  train = stack(inputs['train_x'], inputs['train_y'], sizes or length)
  length = inputs['test_x'].shape[1]
  sizes = case.settings.get('test_sizes', length)
  return train, stack(inputs['test_x'], inputs['test_y'], sizes)


def stack(x, y, sizes):
  clients, length = y.shape
  return ClientData(
    jnp.asarray(x).reshape(-1, *x.shape[2:]),
    jnp.asarray(y, jnp.int32).ravel(),
    jnp.arange(clients * length).reshape(clients, length),
    jnp.broadcast_to(jnp.asarray(sizes), clients),
  )


def of(data, i):
  """Return the data of client i."""
  return data._replace(index=data.index[i], count=data.count[i])


def client_rows(data, i):
  rows = data.index[i, : int(data.count[i])]
  return data.x[rows], data.y[rows]


def start_params(case):
  start = case['start_params']
  return as_given(case.subtree(case.load(start['file']), start['prefix']))


def as_given(tree):
  return jax.tree.map(jnp.asarray, tree)


def as_is(x, key):
  return x


def upload_name(case, client, number):
  name = f'upload/client{client}/round{number}'
  if any(key.startswith(name) for key in case.arrays):
    return name
  return f'client{client}/round{number}'


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
  init = case.subtree(inputs, 'init/')
  return task._replace(init=lambda key: as_given(init))


@functools.cache  # cases of one network share its compiled functions
def network(model, shape, classes, widths, conv_impl):
  """Return the task of a network; widths are those of the narrow one."""
  sizes = {'image_shape': shape, 'num_classes': classes}
  if model == 'narrow':
    module = convnets.SimpleCNN(classes, widths)
    sizes |= {'conv_impl': conv_impl, 'batch_independent': True}
    return compiled(task_from_module(module, **sizes))
  return compiled(make_task(model, conv_impl=conv_impl, **sizes))


BODY = ('conv1', 'conv2', 'fc1', 'fc2')
