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
from fedjax_pfl.models.user_model import make_user_task

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
  """A model of text, with layers in a list."""

  def __init__(self, num_classes, rngs, rate=0.0):
    self.embed = nnx.Embed(WORDS, 5, rngs=rngs)
    draws = [jax.random.normal(rngs.params(), (5,)) for _ in range(11)]
    self.scales = nnx.List([nnx.Param(draw) for draw in draws])
    self.norms = nnx.List([nnx.LayerNorm(5, rngs=rngs)])
    self.dropout = nnx.Dropout(rate, rngs=rngs)
    self.head = nnx.Linear(5, num_classes, rngs=rngs)

  def features(self, x, mask, train=False):
    x = self.norms[0](self.embed(x).mean(axis=1))
    for place, scale in enumerate(self.scales):
      x = (x + place) * scale
    return self.dropout(x, deterministic=not train)


class Dropping(Text):
  def __init__(self, num_classes, rngs):
    super().__init__(num_classes, rngs, rate=0.5)


def text_task(code=Text, **how):
  sizes = {'image_shape': (T,), 'num_classes': Y, 'input_dtype': int}
  return make_user_task(code, **sizes, **how)


def line_task(code=Line, **how):
  return make_user_task(code, image_shape=(16, 2), num_classes=Y, **how)


def chosen(mask):
  """Return the names of the leaves that a mask selects."""
  hits = zip(trees.leaf_names(mask), jax.tree.leaves(mask), strict=True)
  return [name for name, hit in hits if hit]


def test_parameters_of_nnx_are_a_nested_dict_of_words():
  task = text_task()
  params = jax.eval_shape(task.init, KEY(0))
  assert jax.tree.map(lambda leaf: leaf.shape, params) == {
    'embed': {'embedding': (WORDS, 5)},
    'scales': {str(number): (5,) for number in range(11)},
    'norms': {'0': {'scale': (5,), 'bias': (5,)}},
    'head': {'kernel': (5, Y), 'bias': (Y,)},
  }
  assert chosen(task.is_head) == ['head/bias', 'head/kernel']
  assert chosen(task.is_norm) == ['norms/0/bias', 'norms/0/scale']


def test_nnx_computes_what_the_module_does():
  """Every layer gets its own parameters: '10' sorts before '2'."""
  task = text_task()

  @jax.jit
  def both():
    module = Text(Y, nnx.Rngs(KEY(3)))
    features = module.features(TOKENS, MASK)
    params, other = (task.init(KEY(seed)) for seed in (3, 4))
    return (
      (features, module.head(features)),
      (task.features(params, TOKENS, MASK), task.logits(params, TOKENS, MASK)),
      [tree['head']['kernel'] for tree in (params, other)],
    )

  want, found, (kernel, other) = both()
  for one, same in zip(want, found, strict=True):
    np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-4)
  assert (kernel != other).all()


class Awake(nn.Module):
  """A module with dropout that is on unless it is told."""

  num_classes: int

  def setup(self):
    self.body, self.head = nn.Dense(4), nn.Dense(self.num_classes)
    self.drop = nn.Dropout(0.5)

  def features(self, x, mask, train=True):
    return self.drop(self.body(1.0 + x), deterministic=not train)


class AwakeText(Dropping):
  def features(self, x, mask, train=True):
    return super().features(x, mask, train)


@pytest.mark.parametrize('precision', ['float32', 'mixed'])
@pytest.mark.parametrize('code', [Awake, AwakeText])
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


def test_a_class_an_instance_and_a_function_are_one_model():
  def make(input_shape, num_classes):
    assert input_shape == (16, 2)
    return Line(num_classes, width=5)

  tasks = [line_task(code) for code in (Line, Line(Y), make)]
  params = [task.init(KEY(0)) for task in tasks]
  want = tasks[0].logits(params[0], SENSOR, MASK)
  assert want.shape == (4, Y)
  for task, own in zip(tasks, params, strict=True):
    np.testing.assert_array_equal(task.logits(own, SENSOR, MASK), want)


@pytest.mark.parametrize('code', [Line, LineOfNnx])
def test_lines_are_convolved_alike(code):
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


class Compact(nn.Module):
  """As flax's examples are: its layers live in __call__ alone."""

  num_classes: int

  features = mean

  @nn.compact
  def __call__(self, x, mask):
    x = nn.Dense(5)(self.features(x, mask))
    return nn.Dense(self.num_classes, name='head')(x)


class Needy(nn.Module):
  num_classes: int
  width: int


class Empty(nnx.Module):
  pass


def failing(num_classes):
  return Line(num_classes, 1 / 0)


def unbiased(num_classes):
  return nn.Dense(num_classes, use_bias=False)


def running(num_classes):
  return nn.BatchNorm(False)


LINEN = {
  'no head': (linen(conv=body, last=nn.Dense), '"head"?'),
  'layers in __call__': (Compact, 'one in @nn.compact is not found'),
  'a late mean': (linen(late, conv=body, head=nn.Dense), 'a step between'),
  'a head alone': (linen(mean, head=nn.Dense), 'has no layer to train'),
  'no bias': (
    linen(conv=body, head=unbiased), "a head with {'kernel': (5, 3)}"
  ),
  'another width': (
    lambda num_classes: Line(num_classes + 1), 'head makes logits (2, 4)'
  ),
  'other arguments': (Needy, 'Needy, which needs width'),
  'an error': (failing, 'user_model_test.py, line '),
  'running averages': (
    linen(normed, conv=body, norm=running, head=nn.Dense),
    'use layers.BatchNorm',
  ),
  'no features': (nn.Dense(Y), 'no method `features`'),
  'no module': (lambda: 5, '<lambda>, which makes int'),
  'no code': (5, "got 'int', expected a flax module, its class"),
  'a module of nnx': (
    lambda: Empty(), 'or one of flax.nnx by the argument rngs'
  ),
}  # fmt: skip


class Running(Text):
  def __init__(self, num_classes, rngs):
    super().__init__(num_classes, rngs)
    self.norm = nnx.BatchNorm(5, rngs=rngs)


class AlwaysDropping(Dropping):
  def features(self, x, mask):
    return super().features(x, mask, True)


def not_nnx(rngs):
  return Line(Y)


OF_NNX = {
  'BatchNorm': (Running, 'no parameters: norm/mean, norm/var'),
  'dropout': (AlwaysDropping, 'features without an argument `train`'),
  'not nnx': (not_nnx, "got 'Line', expected a module of flax.linen, or"),
  'words for pixels': (Line, 'of another shape than (2, 6)'),
}
LOSSES = {
  'a mean': (lambda z, y: z.mean(), 'that returns float32[]'),
  'a table': (lambda z, y: z, 'that returns float32[3, 3]'),
  'integers': (lambda z, y: y, 'that returns int32[3]'),
  'arguments': (lambda z: z[:, 0], 'TypeError'),
  'an if': (lambda z, y: z[:, 0] if z[0, 0] > 0 else y, 'user_model_test.py'),
  'no function': (5, "got 'int'"),
}


def from_instance(module):
  return pfl.task_from_module(module, image_shape=(T,), num_classes=Y)


SENTENCES = {
  **{name: (line_task, *case) for name, case in LINEN.items()},
  **{f'nnx, {name}': (text_task, *case) for name, case in OF_NNX.items()},
  **{
    f'loss, {name}': (lambda loss: line_task(loss=loss), *case)
    for name, case in LOSSES.items()
  },
  'an instance of nnx': (from_instance, Empty(), 'lambda rngs: MyNet(10, rngs'),
}


@pytest.mark.parametrize('case', SENTENCES)
def test_sentence_for(case):
  make, code, words = SENTENCES[case]
  with counting() as compiled:
    message = refused(make, code)
  assert words in message and not compiled
  assert message.startswith('loss: got ') == case.startswith('loss, ')
