"""Convolutions, in one of several implementations: the setting `conv_impl`.

  y[b, i, j, :] = sum_{u, v} x[b, s i + u - p, s j + v - p, :] K[u, v]

Images are [B, H, W, C], kernels [k, k, in, out]. The implementations agree up
to rounding:

  gemm    matrix products: for a CPU, where XLA's own under a client axis are
          40 times slower. By tiles or patches; see `plan_of`. Separable and
          pooled layers have images [C, H, W, B] inside, whose transpositions
          cancel between them; BatchNorm else has [B, H, W, C]. In half
          precision there are no tiles: their numbers are larger than
          those of the result, and rounding them costs three bits
  fused   XLA's convolutions; BatchNorm, ReLU, pooling and separable
          convolutions in few passes over memory: for a GPU and, without the
          separable ones, for a TPU
  lax     XLA's convolutions, and the rest as the module has it

Which one suits a GPU and a TPU is what their compilers say (docs/performance,
"On accelerators"), not a measurement.
"""

import functools

import jax
from jax.lax import PrecisionLike

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops import (
  matmul_conv,
  patch_conv,
  tile_conv,
  window_conv,
)
from fedjax_pfl.models.ops.blocks import block_size, in_blocks
from fedjax_pfl.models.ops.fusion import pad
from fedjax_pfl.models.ops.patch_conv import Padding

CONV_IMPLS = ('auto', 'lax', 'fused', 'gemm')
AUTO = {'cpu': 'gemm', 'gpu': 'fused', 'tpu': 'fused'}


def resolve(conv_impl: str) -> str:
  """Return the implementation; 'auto' is that of the target."""
  if conv_impl not in CONV_IMPLS:
    raise bad_input(
      'conv_impl',
      got=conv_impl,
      expected='a known implementation of convolutions',
      choices=CONV_IMPLS,
      cause='a typo',
    )
  return AUTO[target()] if conv_impl == 'auto' else conv_impl


def batch_last(x: Array) -> Array:
  """Return images [B, H, W, C] as [C, H, W, B]."""
  return x.transpose(3, 1, 2, 0)


# Swapping the first and the last axis is its own inverse; the two names state
# the direction.
batch_first = batch_last


# Jitted, so that layers of one shape are traced and lowered once; XLA inlines
# the calls.
@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def conv(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike = None,
) -> Array:
  """Convolve x [B, H, W, I] with kernel [k, l, I, O]."""
  edge, plan = padding[0][0], plan_of(x, kernel, stride, padding)
  if plan == 'tiles':
    return tile_conv.conv(x, kernel, edge, precision)
  if plan == 'blocks':
    block = _block_size(x, kernel, stride)

    def convolve(x, kernel):
      return _convolve(x, kernel, stride, padding, precision)

    return in_blocks(convolve, block, x, kernel)
  return _convolve(x, kernel, stride, padding, precision)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def conv_before_norm(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike = None,
) -> Array:
  """Convolve as `conv` does, always images [B, H, W, C] inside."""
  if plan_of(x, kernel, stride, padding) == 'tiles':
    return tile_conv.conv(x, kernel, padding[0][0], precision)
  return patch_conv.conv(x, kernel, stride, padding, precision)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def conv_before_separable(
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  precision: PrecisionLike = None,
) -> Array:
  """Convolve as `conv` does, 'once': what follows takes images [C, H, W, B]."""
  return _convolve(x, kernel, stride, padding, precision)


def plan_of(
  x: Array, kernel: Array, stride: int, padding: Padding, pooled: int = 1
) -> str:
  """Return how to convolve: by 'tiles', patches in 'blocks', or 'once'.

  'once' has images [C, H, W, B] inside, for a batch whose patches fit in cache.
  With a ReLU and a max-pooling of `pooled` pixels a side, 'windows' and 'pooled
  tiles' are functions of all three.
  """
  edge = padding[0][0]
  if padding != ((edge, edge),) * 2 or kernel.shape[:2] == (1, 1):
    return 'once'
  shapes = x.shape, kernel.shape, edge
  if stride == 1 and pooled > 1 and window_conv.is_worth(*shapes, pooled):
    return 'windows'
  is_half = x.dtype.itemsize < 4
  if stride == 1 and not is_half and tile_conv.is_worth(*shapes):
    is_pooled = pooled > 1 and tile_conv.is_pooled(*shapes, pooled)
    return 'pooled tiles' if is_pooled else 'tiles'
  return 'once' if _block_size(x, kernel, stride) == len(x) else 'blocks'


def _block_size(x, kernel, stride):
  """Return the images of a block whose patches stay in cache."""
  _, h, w, _ = x.shape
  numbers = kernel[..., 0].size * h * w // stride**2
  # At least one: a stride larger than the image leaves a part of a pixel.
  return block_size(len(x), max(numbers, 1) * x.dtype.itemsize)


def _convolve(x, kernel, stride, padding, precision):
  x, edge = batch_last(x), padding[0][0]
  if padding != ((edge, edge),) * 2:
    x, edge = pad(x, *padding), 0
  return batch_first(
    matmul_conv.conv(
      x, kernel, stride=stride, padding=edge, precision=precision
    )
  )


@functools.partial(jax.jit, static_argnums=2)
def depthwise(x: Array, kernel: Array, stride: int) -> Array:
  """Convolve every channel of x [B, H, W, C] with its own kernel [3, 3, C]."""
  return batch_first(matmul_conv.depthwise(batch_last(x), kernel, stride))


def windows(
  x: Array, kernel: Array, precision: PrecisionLike = None
) -> list[Array]:
  """Return the windows of `matmul_conv.windows` of x [B, H, W, I]."""
  return matmul_conv.windows(batch_last(x), kernel, precision)
