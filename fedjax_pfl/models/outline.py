"""A model that computes nothing, to get shapes and names quickly.

Tracing a deep model takes longer than all else before a run's first round. The
views of a method, for example, are the same for any model with the same leaves.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, Outputs, Task


def outline(task: Task) -> Task:
  """Return the task with a model of the same leaves whose outputs are 0."""
  params = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  dtype = params['head']['kernel'].dtype
  width, num_classes = params['head']['kernel'].shape

  def zeros(x: Array) -> Outputs:
    rows = len(x) * task.num_labels
    shapes = (rows, width), (rows, num_classes)
    return Outputs(*(jnp.zeros(shape, dtype) for shape in shapes))

  return task._replace(
    features=lambda params, x, mask: zeros(x).features,
    logits=lambda params, x, mask: zeros(x).logits,
    train_outputs=lambda params, batch, key: zeros(batch.x),
    loss=lambda params, batch, key: jnp.zeros((), dtype),
  )
