"""What the tests share: a small task, ragged clients, and ways to play rounds.

The task is written by hand, and has every property that a method may stumble
over: its features depend on the mask (like BatchNorm's), its training inputs
and its loss are random, and its body and its head are learnt.
"""

import csv
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.algorithms import available, load
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.client import local_training, optimisers, personalization
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData, Outputs, Task
from fedjax_pfl.federated.rounds import begin, make_round

ALGORITHMS = available()
KEY = jax.random.key
SHAPE, CLASSES = (2, 2, 1), 3
BATCH = 4
COUNTS = (7, 1, 0, 4, 9, 5, 3)  # less than a batch, one, none, whole batches
TEST_COUNTS = (3, 2, 5, 4, 1, 6, 0)
COHORT = (4, 1, 2, 0, 5)
TRAIN = local_training.LocalTraining(
  rounds=3,
  epochs=2,
  batch_size=BATCH,
  learning_rate=optimisers.step_schedule(0.2, 3),
  momentum=0.9,
  weight_decay=0.01,
  aggregation='examples',
)
FINETUNE = personalization.Finetuning(
  epochs=(1, 2), learning_rate=0.1, batch_size=BATCH, template_batch=BATCH
)


def long(*values):
  """Return a case of a parametrised test that --short leaves out."""
  return pytest.param(*values, marks=pytest.mark.long)


def every_method(short=None, names=ALGORITHMS):
  """Return a mark: for every method; with --short for so many of them.

  These lie evenly in the list: more methods do not make the tests longer. One
  alone lies a little past the middle: FedPAC takes twice the time of FedPer.
  """
  short = len(names) if short is None else short
  chosen = {int((place + 0.55) * len(names) / short) for place in range(short)}
  return pytest.mark.parametrize(
    'name',
    [
      name if number in chosen else long(name)
      for number, name in enumerate(names)
    ],
  )


def refused(call, *args) -> str:
  """Return the sentence with which call(*args) refuses bad input."""
  with pytest.raises(BadInput) as caught:
    call(*args)
  message = str(caught.value)
  for part in (': got ', ', expected '):
    assert part in message, message
  return message


def cheap_noise(key, shape):
  """Return numbers in [-1, 1] that the key decides; quick to compile."""
  high, low = jax.random.key_data(key) / 2.0**32
  places = jnp.arange(np.prod(shape), dtype=float)
  return jnp.sin(1e4 * high + (1 + 9 * low) * places).reshape(shape)


def normal(*shape, seed=0):
  """Return numbers of a normal distribution; nothing is compiled."""
  drawn = np.random.default_rng(seed).normal(size=shape)
  return jax.device_put(drawn.astype(jnp.result_type(float)))


@functools.cache  # its `init` is compiled once
def make_task(
  hidden=5, noise=0.1, shape=SHAPE, classes=CLASSES, normalised=True, deep=False
) -> Task:
  """Return a task of two layers, or three, normalised after the first."""
  sizes = {'body': (int(np.prod(shape)), hidden), 'head': (hidden, classes)}
  if deep:
    sizes['more'] = hidden, hidden

  def init(key):
    keys = iter(jax.random.split(key, 2 * len(sizes)))
    draw = lambda *shape: jax.random.normal(next(keys), shape)
    return {
      part: {'kernel': draw(rows, columns) / rows**0.5, 'bias': draw(columns)}
      for part, (rows, columns) in sizes.items()
    }

  def layer(params, part, x):
    return x @ params[part]['kernel'] + params[part]['bias']

  def features(params, x, mask):
    z = layer(params, 'body', x.reshape(len(x), -1))  # [B, F]
    if normalised:
      total = jnp.maximum(mask.sum(), 1)
      centre = z - (mask[:, None] * z).sum(0) / total
      var = (mask[:, None] * centre**2).sum(0) / total
      z = centre / jnp.sqrt(var + 0.1) + params['body']['bias']
    f = jnp.tanh(z)
    return jnp.tanh(layer(params, 'more', f)) if deep else f

  def head(params, f):
    return layer(params, 'head', f)

  def train_outputs(params, batch, key):
    f = features(params, batch.x, batch.mask)
    f = f * (1 + noise * cheap_noise(key, f.shape))
    return Outputs(f, head(params, f))

  def loss(params, batch, key):
    log_p = jax.nn.log_softmax(train_outputs(params, batch, key).logits)
    own = jnp.take_along_axis(log_p, batch.y[:, None], 1)[:, 0]
    return -(batch.mask * own).sum() / jnp.maximum(batch.mask.sum(), 1)

  def normalise(x, key):
    return x.astype(float) / 255 - 0.5

  def augment(x, key):
    return normalise(x, key) + noise * cheap_noise(key, x.shape)

  def leaves(is_one):
    return {
      part: {leaf: is_one(part, leaf) for leaf in ('kernel', 'bias')}
      for part in sizes
    }

  return Task(
    init=jax.jit(init),
    features=features,
    logits=lambda params, x, mask: head(params, features(params, x, mask)),
    loss=loss,
    train_outputs=train_outputs,
    augment=augment,
    normalise=normalise,
    is_head=leaves(lambda part, leaf: part == 'head'),
    num_classes=classes,
    norm_leaves=leaves(lambda *names: normalised and names == ('body', 'bias')),
  )


def params_of(task: Task):
  """Return parameters of a normal distribution; nothing is compiled."""
  shapes = jax.eval_shape(task.init, KEY(7))
  return jax.tree.map(lambda leaf: normal(*leaf.shape), shapes)


def make_data(counts=COUNTS, seed=0, shape=SHAPE, classes=CLASSES):
  """Return clients with random images; the last row of the pool is poison."""
  rng = np.random.default_rng(seed)
  total = sum(counts)
  x = rng.integers(0, 200, (total + 1, *shape), np.uint8)
  x[-1] = 255
  index = np.zeros((len(counts), max(counts)), np.int32)
  ends = np.cumsum(counts)
  rows = np.split(rng.permutation(total), ends[:-1])
  for line, own in zip(index, rows, strict=True):
    line[: len(own)] = own
  y = rng.integers(0, classes, total + 1).astype(np.int32)
  # Nothing is compiled: every process that collects the tests does this.
  return ClientData(*jax.device_put((x, y, index, np.array(counts, np.int32))))


def pad(data: ClientData, width: int, row: int = 0) -> ClientData:
  """Return the clients in `width` columns; all padding shows pool row `row`."""
  index = np.full((len(data.index), width), row % len(data.x), np.int32)
  rows = map(np.asarray, (index, data.index, data.count))
  for line, own, count in zip(*rows, strict=True):
    line[:count] = own[:count]
  return data._replace(index=jax.device_put(index))


def client_of(data: ClientData, i: int) -> ClientData:
  """Return the data of client i: index [N], count []."""
  rows = np.asarray(data.index)[i], np.asarray(data.count)[i]
  index, count = jax.device_put(rows)
  return data._replace(index=index, count=count)


def build(name: str, task: Task | None = None, **hp):
  """Return the stages of a method, small unless `hp` says otherwise."""
  module = load(name)
  small = {'train': TRAIN, 'finetune': FINETUNE}
  return module.build(task or make_task(), module.HParams(**{**small, **hp}))


@functools.cache
def round_of(stage, **options):
  """Return the round of a stage; the same stage is compiled once."""
  return make_round(stage.algorithm, name=stage.name, **options)


def play(stages, data, rounds=2, cohort=COHORT, seed=1, **options):
  """Return server, clients and a list of metrics after `rounds` of each stage.

  The options are those of `make_round`.
  """
  server, clients = begin(stages[0], data, KEY(seed))
  cohort, history = jnp.array(cohort), []
  for number, stage in enumerate(stages):
    if number:
      server, clients = stage.initialize(server, clients, data)
    prepared = stage.prepare_data(server, data)
    round_fn = round_of(stage, **options)
    for _ in range(rounds):
      server, clients, metrics = round_fn(
        server, clients, cohort, prepared, KEY(seed + 1)
      )
      history.append(metrics)
  return server, clients, history


def assert_same_bits(got, want):
  """Compare two trees: structure, shapes, dtypes, bits."""
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for one, other in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes(), (one, other)


def assert_close(got, want):
  """Compare two trees: structure, shapes, and values up to rounding.

  That of float64, where that is on; what is wrong in earnest differs by more
  than 1e-3.
  """
  double = jax.config.jax_enable_x64
  atol, rtol = (1e-11, 1e-10) if double else (1e-5, 1e-4)
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for one, other in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, atol=atol, rtol=rtol)


def with_failures(stage, dropout_rate=0.0, **how):
  """Return the stage in which clients fail; nothing else goes around it."""
  how = Around(failures=Failures(dropout_rate, **how))
  (failing,) = around((stage,), how)
  return failing


def read_rows(path) -> list[dict[str, str]]:
  """Return the rows of a CSV."""
  with open(path, newline='') as file:
    return list(csv.DictReader(file))
