"""A model that computes nothing, to get shapes and names quickly.

Tracing a deep model takes longer than all else before a run's first round. The
views of a method, for example, are the same for any model with the same layers.
Each layer but the head has a single parameter here: an optimiser traces every
leaf of a tree in each of its sums and products.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, Key, Outputs, Params, PyTree, Task


def outline(task: Task) -> Task:
  """Return the task with a model of the same layers whose outputs are 0.

  >>> stages = module.build(outline(task), hp)
  """
  params = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  head = params['head']['kernel']

  def init(key: Key) -> Params:
    return thinned(task.init(key))

  def zeros(x: Array) -> Outputs:
    width, num_classes = head.shape
    return Outputs(
      jnp.zeros((len(x), width), head.dtype),
      jnp.zeros((len(x), num_classes), head.dtype),
    )

  def features(params: Params, x: Array, mask: Array) -> Array:
    return zeros(x).features

  def logits(params: Params, x: Array, mask: Array) -> Array:
    return zeros(x).logits

  return task._replace(
    init=init,
    is_head=thinned(task.is_head),
    norm_leaves=task.norm_leaves and thinned(task.norm_leaves),
    features=features,
    logits=logits,
    train_outputs=lambda params, batch, key: zeros(batch.x),
    loss=lambda params, batch, key: jnp.zeros((), head.dtype),
  )


def thinned(layers: PyTree) -> PyTree:
  """Return the layers with one leaf each; the head is unchanged."""
  return {
    name: layer if name == 'head' else jax.tree.leaves(layer)[0]
    for name, layer in layers.items()
  }
