"""The precision of a model's arithmetic: the setting `precision`.

  float32   products of float32 as they are, on every device: without it a TPU
            rounds their inputs to bfloat16, and an H100 to TensorFloat-32
  tf32      inputs of products have 10 bits after the point where the device
            has such products (TensorFloat-32; three bfloat16 passes on a TPU)
  mixed     parameters are float32; activations and products are bfloat16.
            Statistics of BatchNorm, logits, losses, gradients of parameters
            and their updates are float32

On a CPU float32 and tf32 are the same. float64 parameters stay float64 in the
first two.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_pfl.core.errors import check_known
from fedjax_pfl.core.fusion import gradients_alone
from fedjax_pfl.core.types import PyTree

PRECISIONS = ('float32', 'tf32', 'mixed')
_JAX_NAMES = {'float32': 'float32', 'tf32': 'tensorfloat32'}


def in_precision(fn: Callable, precision: str) -> Callable:
  """Return fn, a function of parameters and images, in this precision.

  Its results are float32 again in mixed precision.
  """
  check_known(
    'precision',
    [precision],
    expected='a known precision of products',
    choices=PRECISIONS,
    cause='a typing error; bfloat16 is "mixed": parameters stay float32',
  )

  @functools.wraps(fn)
  def run(params: PyTree, *args: PyTree) -> Any:
    if precision == 'mixed':  # the cast keeps gradients alone
      low = _cast((params, *args), jnp.bfloat16)
      return _cast(fn(*low), jnp.float32)
    with jax.default_matmul_precision(_JAX_NAMES[precision]):
      return fn(gradients_alone(params), *args)

  return run


def _cast(tree: PyTree, dtype) -> PyTree:
  def cast(leaf):
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)  # a key is not
    return leaf.astype(dtype) if is_float else leaf

  return jax.tree.map(cast, tree)
