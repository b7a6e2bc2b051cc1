"""Every method on a user's model of text, with a loss of the user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import COUNTS, KEY, build, client_of, every_method, refused

import fedjax_pfl as pfl
from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import stage_shapes

WORDS, T, Y = 9, 4, 3
INSIDE = ('fedlc', 'fedrod', 'fedrs')  # they change the logits of the loss
ROWS = np.arange(len(COUNTS) * max(COUNTS), dtype=np.int32)
DATA = pfl.ClientData(
  *jax.device_put(
    (
      np.arange(ROWS.size * T, dtype=np.int32).reshape(-1, T) % WORDS,
      ROWS % Y,
      ROWS.reshape(len(COUNTS), -1),
      np.array(COUNTS, np.int32),
    )
  )
)

pytestmark = pytest.mark.usefixtures('quick_compiler')


class Text(nnx.Module):
  def __init__(self, rngs):
    self.embed = nnx.Embed(WORDS, 5, rngs=rngs)
    self.norm = nnx.LayerNorm(5, rngs=rngs)
    self.head = nnx.Linear(5, Y, rngs=rngs)

  def features(self, x, mask):
    return self.norm(self.embed(x).mean(axis=1))


@every_method(3)
def test_a_model_of_tokens_with_another_loss(name):
  """Traced, not run: each stage asks for the loss, but those that refuse it."""
  calls = []

  def loss(logits, labels):
    calls.append(logits.shape)
    return jnp.square(logits[:, 0] - labels)

  sizes = {'image_shape': (T,), 'num_classes': Y, 'input_dtype': int}
  task = pfl.task_from_module(Text, **sizes, loss=loss)
  if name in INSIDE:
    assert 'changes the logits inside' in refused(build, name, task)
    task = pfl.task_from_module(Text, **sizes)
  for stage, server, clients in stage_shapes(build(name, task), DATA):
    client = jax.eval_shape(lambda tree: trees.gather(tree, 0), clients)
    down = jax.eval_shape(stage.algorithm.download, server, client)
    calls.clear()
    shapes = jax.eval_shape(stage.prepare_data, server, DATA)
    own = client_of(DATA._replace(x=shapes.x), 0)
    jax.eval_shape(stage.algorithm.local_update, down, client, own, KEY(0))
    assert bool(calls) != (name in INSIDE), stage.name
  views = jax.eval_shape(
    stage.algorithm.personalize, server, client, client_of(DATA, 0), KEY(0)
  )
  for view in views.values():
    x, mask = DATA.x[:2], jnp.ones(2)
    logits = jax.eval_shape(stage.algorithm.predict, view, x, mask)
    assert logits.shape == (2, Y) and logits.dtype == jnp.float32
