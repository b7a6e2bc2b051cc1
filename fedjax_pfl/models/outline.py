"""A model that computes nothing, to get shapes and names quickly.

Tracing a deep model takes longer than all else before a run's first round. The
views of a method, for example, are the same for any model with the same layers.
Each layer but the head has a single parameter here: an optimiser traces every
leaf of a tree in each of its sums and products.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, Outputs, PyTree, Task


def outline(task: Task) -> Task:
  """Return the task with a model of the same layers whose outputs are 0.

  >>> stages = module.build(outline(task), hp)
  """
  params = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  dtype = params['head']['kernel'].dtype
  width, num_classes = params['head']['kernel'].shape

  def zeros(x: Array) -> Outputs:
    rows = len(x) * task.num_labels
    shapes = (rows, width), (rows, num_classes)
    return Outputs(*(jnp.zeros(shape, dtype) for shape in shapes))

  return task._replace(
    init=lambda key: thinned(task.init(key)),
    is_head=thinned(task.is_head),
    norm_leaves=task.norm_leaves and thinned(task.norm_leaves),
    features=lambda params, x, mask: zeros(x).features,
    logits=lambda params, x, mask: zeros(x).logits,
    train_outputs=lambda params, batch, key: zeros(batch.x),
    loss=lambda params, batch, key: jnp.zeros((), dtype),
  )


def thinned(layers: PyTree) -> PyTree:
  """Return the layers with one leaf each; the head is unchanged."""
  return {
    name: layer if name == 'head' else jax.tree.leaves(layer)[0]
    for name, layer in layers.items()
  }
