"""Models of the user's own: flax.linen and flax.nnx, on any inputs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler import counting
from flax import nnx
from helpers import KEY, refused

import fedjax_pfl as pfl
from fedjax_pfl.core import trees
from fedjax_pfl.models.module_task import make_user_task

pytestmark = pytest.mark.usefixtures('quick_compiler')
Y, T, WORDS = 3, 6, 20
SENSOR = jax.random.normal(KEY(0), (4, 16, 2))
TOKENS = jnp.arange(4 * T).reshape(4, T) % WORDS
MASK = jnp.ones(4)


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

  rate = 0.5

  def __init__(self, num_classes, rngs):
    self.embed = nnx.Embed(WORDS, 5, rngs=rngs)
    draws = [jax.random.normal(rngs.params(), (5,)) for _ in range(11)]
    self.scales = nnx.List([nnx.Param(draw) for draw in draws])
    self.norms = nnx.List([nnx.LayerNorm(5, rngs=rngs)])
    self.dropout = nnx.Dropout(self.rate, rngs=rngs)
    self.head = nnx.Linear(5, num_classes, rngs=rngs)

  def features(self, x, mask, train=True):
    x = self.norms[0](self.embed(x).mean(axis=1))
    for place, scale in enumerate(self.scales):
      x = (x + place) * scale
    return self.dropout(x, deterministic=not train)


class Awake(nn.Module):
  """The same of flax.linen."""

  num_classes: int

  def setup(self):
    self.body, self.head = nn.Dense(4), nn.Dense(self.num_classes)
    self.drop = nn.Dropout(0.5)

  def features(self, x, mask, train=True):
    return self.drop(self.body(1.0 + x), deterministic=not train)


def text_task(code=Text, **how):
  sizes = {'image_shape': (T,), 'num_classes': Y, 'input_dtype': int}
  return make_user_task(code, **sizes, **how)


def line_task(code=Line, **how):
  return make_user_task(code, image_shape=(16, 2), num_classes=Y, **how)


def test_a_model_of_nnx():
  """A nested dict of words; every layer gets its own: '10' is before '2'."""
  task = text_task()

  @jax.jit
  def both():
    module = Text(Y, nnx.Rngs(KEY(3)))
    features = module.features(TOKENS, MASK, train=False)
    params, other = (task.init(KEY(seed)) for seed in (3, 4))
    return (
      (features, module.head(features)),
      (task.features(params, TOKENS, MASK), task.logits(params, TOKENS, MASK)),
      (params, other['head']['kernel']),
    )

  want, found, (params, other) = both()
  assert jax.tree.map(jnp.shape, params) == {
    'embed': {'embedding': (WORDS, 5)},
    'scales': {str(number): (5,) for number in range(11)},
    'norms': {'0': {'scale': (5,), 'bias': (5,)}},
    'head': {'kernel': (5, Y), 'bias': (Y,)},
  }
  names = [
    trees.leaf_names(trees.select(mask, mask))
    for mask in (task.is_head, task.is_norm)
  ]
  assert names == [
    ['head/bias', 'head/kernel'],
    ['norms/0/bias', 'norms/0/scale'],
  ]
  for one, same in zip(want, found, strict=True):
    np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-4)
  assert (params['head']['kernel'] != other).all()


@pytest.mark.parametrize(
  'code, precision', [(Awake, 'mixed'), (Text, 'float32')]
)
def test_dropout_is_for_training(code, precision):
  """Off in testing; in training by the key, whatever the padding is."""
  task = text_task(code, precision=precision)
  few, many = (
    pfl.Batch(0 * TOKENS[:n], jnp.zeros(n, int), MASK[:n].at[3:].set(0))
    for n in (3, 4)
  )

  @jax.jit
  def outputs():
    params = task.init(KEY(0))
    full, logits = (f(params, *few[::2]) for f in (task.features, task.logits))
    cases = (many, 1), (many, 2), (few, 1)
    own = [task.train_outputs(params, b, KEY(s)).features for b, s in cases]
    losses = [task.loss(params, b, KEY(1)) for b in (few, many)]
    return full, logits, params['head'], own, losses

  full, logits, head, (one, other, short), losses = outputs()
  bound = 1e-5 if precision == 'float32' else 0.05
  assert full.all() and (full == full[0]).all()
  want = full @ head['kernel'] + head['bias']
  np.testing.assert_allclose(logits, want, rtol=bound, atol=bound)
  want = jnp.where(short == 0, 0, 2 * full)
  np.testing.assert_allclose(short, want, rtol=bound, atol=bound)
  assert 0 < (one == 0).mean() < 1 and ((one == 0) != (other == 0)).any()
  np.testing.assert_array_equal(short, one[:3])
  np.testing.assert_allclose(*losses, rtol=bound)


def make_line(input_shape, num_classes):
  assert input_shape == (16, 2)
  return Line(num_classes, width=5)


@pytest.mark.parametrize('code', [Line, Line(Y), make_line, LineOfNnx])
def test_lines_are_convolved_alike(code):
  """By a class, an instance or a function."""
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


def linen(features=Line.features, **layers):
  """Return a module of these layers, made with the number of classes."""

  class Made(nn.Module):
    num_classes: int

    def setup(self):
      for name, make in layers.items():
        setattr(self, name, make(self.num_classes))

  Made.features = features
  return Made


def body(num_classes):
  return nn.Conv(5, (3,))


def mean(self, x, mask):
  return x.mean(axis=1)


def late(self, x, mask):  # its mean over the steps stands behind `features`
  return self.conv(x)


def normed(self, x, mask):
  return self.norm(Line.features(self, x, mask))


def running(num_classes):
  return nn.BatchNorm(False)


def unbiased(num_classes):
  return nn.Dense(num_classes, use_bias=False)


def failing(num_classes):
  return Line(num_classes, 1 / 0)


class Needy(nn.Module):
  num_classes: int
  width: int


class Empty(nnx.Module):
  pass


class Running(Text):
  def __init__(self, num_classes, rngs):
    super().__init__(num_classes, rngs)
    self.norm = nnx.BatchNorm(5, rngs=rngs)


class AlwaysDropping(Text):
  def features(self, x, mask):
    return super().features(x, mask, True)


def not_nnx(rngs):
  return Line(Y)


def from_instance(module):
  return pfl.task_from_module(module, image_shape=(T,), num_classes=Y)


def with_loss(loss):
  return line_task(loss=loss)


SENTENCES = [
  # Of flax.linen.
  (line_task, linen(conv=body, last=nn.Dense), '"head"?'),
  (line_task, linen(late, conv=body, head=nn.Dense), 'a step between'),
  (line_task, linen(mean, head=nn.Dense), 'nothing but a head'),
  (line_task, linen(conv=body, head=unbiased), "a head with {'kernel': (5, 3)"),
  (line_task, lambda num_classes: Line(num_classes + 1), 'logits (2, 4)'),
  (line_task, Needy, 'Needy, which needs width'),
  (line_task, failing, 'user_model_test.py, line '),
  (
    line_task,
    linen(normed, conv=body, norm=running, head=nn.Dense),
    'use layers.BatchNorm',
  ),
  (line_task, nn.Dense(Y), 'no method `features`'),
  (line_task, lambda: 5, '<lambda>, which makes int'),
  (line_task, 5, "got 'int', expected a flax module, its class"),
  (line_task, Empty, 'or one of flax.nnx by the argument rngs'),
  # Of flax.nnx.
  (text_task, Running, 'no parameters: norm/mean, norm/var'),
  (text_task, AlwaysDropping, 'features without an argument `train`'),
  (text_task, not_nnx, "got 'Line', expected a module of flax.linen, or"),
  (text_task, Line, 'of another shape than (2, 6)'),
  (from_instance, Empty(), 'lambda rngs: MyNet(10, rngs'),
  # Losses.
  (with_loss, lambda z, y: z.mean(), 'that returns float32[]'),
  (with_loss, lambda z, y: y, 'that returns int32[3]'),
  (with_loss, lambda z: z[:, 0], 'TypeError'),
  (
    with_loss,
    lambda z, y: z[:, 0] if z[0, 0] > 0 else y,
    'user_model_test.py',
  ),
  (with_loss, 5, "got 'int'"),
]


@pytest.mark.parametrize('make, code, words', SENTENCES)
def test_sentences(make, code, words):
  with counting() as compiled:
    message = refused(make, code)
  assert words in message and not compiled
  assert message.startswith('loss: got ') == (make is with_loss)
