"""Raise in the step in which local training diverges, where it runs in Python.

In a compiled program there are no values to check while it is traced.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, PyTree


class Diverged(ArithmeticError):
  """A step with a value that is not finite; the message names its place."""


def check_step(
  epoch: Array, position: Array, loss: Array, grads: PyTree, tree: PyTree
) -> None:
  """Raise Diverged if the loss, a gradient or a parameter is not finite."""
  if isinstance(loss, jax.core.Tracer):
    return
  parts = ('loss', loss), ('gradient', grads), ('parameters after it', tree)
  for what, part in parts:
    if name := _first_nonfinite(part):
      where = f'{what} ({name})' if part is not loss else what
      raise Diverged(
        f'step {int(position) + 1} of epoch {int(epoch) + 1}, in its {where}'
      )


def _first_nonfinite(tree: PyTree) -> str:
  """Return the name of the first leaf that is not finite, or ''."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    is_floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    if is_floating and not bool(jnp.isfinite(leaf).all()):
      return jax.tree_util.keystr(path, simple=True, separator='/') or 'loss'
  return ''
