"""The settings and inputs of a case as the package has them.

Compiling a client's whole training takes many times what running it takes, and
each method is a program of its own. So the cases run local training as a loop
in Python (`stepwise`) over a few small programs that they share (`compiled`):
the network's loss, its gradient, its outputs. That the compiled loop gives the
same is tested for every method in tests/algorithms/contract_test.py, and for
weighted FedAvg in methods.py.
"""

import functools
from types import SimpleNamespace
from unittest import mock

import goldens
import jax
import jax.numpy as jnp
import pytest

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.types import Batch, ClientData
from fedjax_pfl.data import batching
from fedjax_pfl.models import convnets
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.registry import make_task

KEY = jax.random.key  # nothing random is left in a case: any seed will do
BODY = ('conv1', 'conv2', 'fc1', 'fc2')  # of the narrow network
MODELS = {'4conv': 'convnet4', '3conv': 'convnet3', 'mobilenet': 'mobilenet'}
MODELS |= {f'resnet{depth}': f'resnet{depth}' for depth in (10, 18, 50)}


class Case(goldens.Case):
  """A case, with what it says in records of the package."""

  def training(self, rates='lr_per_round', **changes):
    """Return its local training, some of its fields changed."""
    how = self.get('aggregation', '')
    weighted = 'n_i' in how or 'train_n' in how
    fields = dict(
      rounds=self.get('rounds', 1),
      epochs=self.get('local_epochs', 1),
      batch_size=self.get('batch_size'),
      momentum=self['momentum'],
      weight_decay=self['weight_decay'],
      shuffle=False,
      aggregation='examples' if weighted else 'uniform',
    )
    if rates in self.settings:
      fields['learning_rate'] = by_round(self[rates])
    if 'clip_norm' in self.settings:
      fields['clip_norm'] = self['clip_norm']
    return local_training.LocalTraining(**{**fields, **changes})

  def finetuning(self):
    """Return its fine-tuning, if it has one of some epochs."""
    settings = self.get('personalization') or {}
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

  @property
  def common(self):
    """Return the arrays of the inputs that it shares."""
    return self.load(self['common'])

  def data(self):
    """Return the data of all clients for training, and for testing."""
    arrays = self.common
    labels = self.arrays.get('train_y', arrays['train_y'])
    sizes = self.get('train_sizes', self.get('train_n'))
    return (
      stack(arrays['train_x'], labels, sizes),
      stack(arrays['test_x'], arrays['test_y'], self.get('test_sizes')),
    )

  def params(self, prefix, arrays=None):
    """Return the parameters prefix/... of the case, or of other arrays."""
    return jax.tree.map(jnp.asarray, self.subtree(prefix, arrays))

  def start(self):
    """Return the parameters that it starts with, which another case made."""
    start = self['start_params']
    return self.params(start['prefix'].rstrip('/'), self.load(start['file']))

  def batch(self):
    """Return its one batch."""
    return batch_of(*self.given('x', 'y'))

  def model(self):
    """Return the name of its model, or skip the case."""
    text = self['model'].lower()
    for word, name in MODELS.items():
      if text.startswith(word):
        return name
    pytest.skip(f'{self["case"]}: the model {text} is not there yet')

  def task(self):
    """Return its task, which begins with the parameters given there."""
    arrays, widths = self.common, ()
    shape = arrays['train_x'].shape[2:]
    classes = arrays[f'init/{self.head}/bias'].size
    if self.head == 'fc3':
      widths = tuple(arrays[f'init/{name}/bias'].size for name in BODY)
    model = 'narrow' if widths else self.model()
    init = self.params('init', arrays)
    task = network(model, shape, classes, widths)
    return task._replace(init=lambda key: init)


def by_round(rates):
  """Return the schedule of these learning rates, one a round."""
  rates = jnp.asarray(rates, float)
  return lambda clock: rates[clock]


def stack(x, y, sizes=None):
  """Return the data of clients from x [K, N, ...] and y [K, N]."""
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
  """Return images and labels of client i."""
  rows = data.index[i, : int(data.count[i])]
  return data.x[rows], data.y[rows]


def batch_of(x, y):
  return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(x)))


@functools.cache  # cases of one network share its compiled functions
def network(model, shape, classes, widths):
  """Return the task of a network; widths are those of the narrow one."""
  sizes = {'image_shape': shape, 'num_classes': classes}
  if model == 'narrow':
    module = convnets.SimpleCNN(classes, widths)
    sizes['batch_independent'] = True
    return compiled(task_from_module(module, **sizes))
  return compiled(make_task(model, **sizes))


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
      mock.patch.object(batching, 'lax', loops),
    ):
      return fn(*args)

  return run


def with_fits(fn):
  """Return fn that returns a list of all its fits, too: (tree, info) each."""

  def run(*args):
    fits = []

    def recorded(*args, fit=local_training.fit, **kwargs):
      fits.append(fit(*args, **kwargs))
      return fits[-1]

    with mock.patch.object(local_training, 'fit', recorded):
      return fn(*args), fits

  return run


def losses_of(fit):
  """Return the losses before every step of a fit, without padding."""
  return steps_of(fit, fit[1].losses)


def steps_of(fit, values):
  """Return what a fit has of each step, without padding."""
  return values[: int(fit[1].num_steps)]
