"""Models of the user's own: flax.linen and flax.nnx, on any inputs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler import counting
from flax import nnx
from helpers import KEY, normal, refused

import fedjax_pfl as pfl
from fedjax_pfl.core import trees
from fedjax_pfl.models.module_functions import module_of
from fedjax_pfl.models.module_task import task_from_module

pytestmark = pytest.mark.usefixtures('quick_compiler')
Y, T, WORDS = 3, 6, 20
SENSOR = normal(4, 16, 2)
TOKENS = np.arange(4 * T, dtype=np.int32).reshape(4, T) % WORDS
MASK = jax.device_put(np.ones(4, np.float32))


class Line(nn.Module):
  """A model of sensor data, without BatchNorm."""

  num_classes: int
  width: int = 5

  def setup(self):
    self.conv = nn.Conv(self.width, (3,))
    self.head = nn.Dense(self.num_classes)

  def features(self, x, mask):
    x = nn.max_pool(nn.relu(self.conv(x)), (2,), strides=(2,))
    return x.mean(axis=1)


class LineOfNnx(nnx.Module):
  def __init__(self, num_classes, rngs):
    self.conv = nnx.Conv(2, 5, (3,), rngs=rngs)
    self.head = nnx.Linear(5, num_classes, rngs=rngs)

  features = Line.features


class Text(nnx.Module):
  """A model of text: layers in a list, and dropout that is on by itself."""

  def __init__(self, num_classes, rngs):
    self.embed = nnx.Embed(WORDS, 5, rngs=rngs)
    draws = [jax.random.normal(rngs.params(), (5,)) for _ in range(11)]
    self.scales = nnx.List([nnx.Param(draw) for draw in draws])
    self.norms = nnx.List([nnx.LayerNorm(5, rngs=rngs)])
    self.dropout = nnx.Dropout(0.5, rngs=rngs)
    self.head = nnx.Linear(5, num_classes, rngs=rngs)

  def features(self, x, mask, train=True):
    x = self.norms[0](self.embed(x).mean(axis=1))
    for place, scale in enumerate(self.scales):
      x = (x + place) * scale
    return self.dropout(x, deterministic=not train)


def text_task(code=Text, **how):
  return make_task(code, (T,), input_dtype=int, **how)


def line_task(code=Line, **how):
  return make_task(code, (16, 2), **how)


def make_task(code, shape, **how):
  module = module_of(code, shape, Y)
  return task_from_module(module, image_shape=shape, num_classes=Y, **how)


def test_a_model_of_nnx():
  """A nested dict of words; every layer gets its own: '10' is before '2'."""
  task = text_task()

  @jax.jit
  def both():
    module = Text(Y, nnx.Rngs(KEY(3)))
    features = module.features(TOKENS, MASK, train=False)
    params, other = (task.init(KEY(seed)) for seed in (3, 4))
    found = [f(params, TOKENS, MASK) for f in (task.features, task.logits)]
    return [features, module.head(features)], found, params, other

  want, found, params, other = both()
  assert jax.tree.map(jnp.shape, params) == {
    'embed': {'embedding': (WORDS, 5)},
    'scales': {str(number): (5,) for number in range(11)},
    'norms': {'0': {'scale': (5,), 'bias': (5,)}},
    'head': {'kernel': (5, Y), 'bias': (Y,)},
  }
  names = trees.leaf_names(trees.select(task.is_norm, task.is_norm))
  assert names == ['norms/0/bias', 'norms/0/scale']
  for one, same in zip(want, found, strict=True):
    np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-4)
  assert (params['head']['kernel'] != other['head']['kernel']).all()


def test_dropout_is_for_training():
  """Off in testing; in training by the key, whatever the padding is."""
  task = text_task()
  few, many = (
    pfl.Batch(0 * TOKENS[:n], jnp.zeros(n, int), MASK[:n].at[3:].set(0))
    for n in (3, 4)
  )

  @jax.jit
  def outputs():
    params = task.init(KEY(0))
    full = task.features(params, few.x, few.mask)
    cases = (many, 1), (many, 2), (few, 1)
    own = [task.train_outputs(params, b, KEY(s)).features for b, s in cases]
    return full, own, [task.loss(params, b, KEY(1)) for b in (few, many)]

  full, (one, other, short), losses = outputs()
  assert full.all() and (full == full[0]).all()
  want = jnp.where(short == 0, 0, 2 * full)
  np.testing.assert_allclose(short, want, rtol=1e-5, atol=1e-5)
  assert 0 < (one == 0).mean() < 1 and ((one == 0) != (other == 0)).any()
  np.testing.assert_array_equal(short, one[:3])
  np.testing.assert_allclose(*losses, rtol=1e-5)


def make_line(input_shape, num_classes):
  assert input_shape == (16, 2)
  return Line(num_classes, width=5)


@pytest.mark.parametrize('code', [Line(Y), make_line, LineOfNnx])
def test_lines_are_convolved_alike(code):
  """By an instance, a function or a class."""
  task = line_task(code)
  params = task.init(KEY(0))
  kernel = params['conv']['kernel']  # [3, 2, 5]
  padded = jnp.pad(SENSOR, ((0, 0), (1, 1), (0, 0)))
  rows = sum(padded[:, i : i + 16] @ kernel[i] for i in range(3))
  rows = jax.nn.relu(rows + params['conv']['bias'])
  want = rows.reshape(4, 8, 2, 5).max(2).mean(1)
  found = task.features(params, SENSOR, MASK)
  np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_the_own_loss_is_that_of_the_task():
  task = line_task(loss=lambda logits, labels: 2 * logits[:, 0] + labels)
  params = task.init(KEY(0))
  batch = pfl.Batch(SENSOR, jnp.arange(4), jnp.array([1.0, 1, 0, 1]))
  logits = task.logits(params, SENSOR, MASK)
  want = (2 * logits[:, 0] + jnp.arange(4))[jnp.array([0, 1, 3])].mean()
  loss = task.loss(params, batch, KEY(0))
  np.testing.assert_allclose(loss, want, rtol=1e-5)


class OtherName(Line):
  def setup(self):
    self.conv = nn.Conv(self.width, (3,))
    self.last = nn.Dense(self.num_classes)


class Needy(nn.Module):
  num_classes: int
  width: int


def failing(num_classes):
  return Line(num_classes, 1 / 0)


class Running(Text):
  def __init__(self, num_classes, rngs):
    super().__init__(num_classes, rngs)
    self.norm = nnx.BatchNorm(5, rngs=rngs)


class AlwaysDropping(Text):
  def features(self, x, mask):
    return super().features(x, mask, True)


class NoRate(Text):
  def features(self, x, mask, train=True):
    return super().features(x, mask, False) * (self.rate if train else 1)


def as_instance(code):
  return pfl.task_from_module(code, image_shape=(16, 2), num_classes=Y)


def with_loss(loss):
  return line_task(loss=loss)


SENTENCES = [
  # Of flax.linen.
  (line_task, OtherName, '"head"?'),
  (line_task, lambda num_classes: Line(num_classes + 1), 'logits (2, 4)'),
  (line_task, Needy, 'Needy, which needs width'),
  (line_task, failing, 'user_model_test.py, line '),
  (line_task, nn.Dense(Y), 'no method `features`'),
  (as_instance, Line, 'the class Line'),
  (line_task, lambda: 5, '<lambda>, which makes int'),
  # Of flax.nnx.
  (text_task, Running, 'no parameters: norm/mean, norm/var'),
  (text_task, AlwaysDropping, 'features without an argument `train`'),
  (text_task, NoRate, 'AttributeError for inputs int32[2, 6]'),
  (text_task, Line, 'of another shape than (2, 6)'),
  # Losses.
  (with_loss, lambda z, y: z.mean(), 'that returns float32[]'),
  (with_loss, lambda z: z[:, 0], 'TypeError'),
]


@pytest.mark.parametrize('make, code, words', SENTENCES)
def test_sentences(make, code, words):
  with counting() as compiled:
    message = refused(make, code)
  assert words in message and not compiled
  assert message.startswith('loss: got ') == (make is with_loss)
