"""Products with a transposed operand, which is not copied.

Under a client axis XLA copies `b.T` before it multiplies; where the product
names its axes instead, it reads b as it is. With the copies a step on one core
takes longer: the 4convNet 1.12 (batch 50), FedAvgCNN 1.14 and 1.08 (batch 10
and 50), MobileNet 1.04.
"""

from jax import lax
from jax.lax import PrecisionLike

from fedjax_pfl.core.types import Array


def times_transposed(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a b^T."""
  return lax.dot_general(a, b, (((1,), (1,)), ((), ())), precision=precision)


def transposed_times(a: Array, b: Array, precision: PrecisionLike) -> Array:
  """Return a^T b."""
  return lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=precision)
