"""A convolution over clients as one kernel in Pallas, for a GPU.

  y[p] = sum_t x[p + t] K[t],  dK[t] = sum_p x[p + t]^T dy[p],  taps t of k x k

Products without patches in memory: a program of the grid reads the pixels that
its pixels p need, tap after tap. dx is the convolution of dy with the kernel
turned around. dK is summed over PARTS of the pixels, then over the parts.

Of stride 1 and at least 16 channels, powers of two. The loops are not unrolled:
in float32 XLA's compiler took minutes for it. Of float32 a product is three of
TF32, with the accuracy of float32. On a CPU it is interpreted, for tests.
"""

import importlib.util

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import DotAlgorithmPreset as Preset

from fedjax_pfl.core.target import target
from fedjax_pfl.models.ops.passes import convolution

PIXELS = 128  # of a program, in y
SOME = 32  # channels, or pixels in dK, that are multiplied at a time
PARTS = 8  # of the pixels, in dK
LEAST_CHANNELS = 16


def is_worth(kernel: tuple[int, ...], stride: int, padding) -> bool:
  """Return whether a kernel [k, l, I, O] has a convolution here."""
  high, broad, *channels = kernel
  return (
    importlib.util.find_spec('jax.experimental.pallas.triton') is not None
    and target() != 'tpu'
    and high == broad
    and stride == 1
    and len({edge for edges in padding for edge in edges}) == 1
    and padding[0][0] < high
    and all(n >= LEAST_CHANNELS and n & (n - 1) == 0 for n in channels)
  )


def _convolve(how, x, kernel):
  """Return y [B, h, w, O] of x [B, H, W, I] and kernel [k, k, I, O]."""
  from jax.experimental import pallas as pl

  (b, high, broad, c), (side, _, _, o) = x.shape, kernel.shape
  edge, some, size = how[0], min(c, SOME), side * side
  h, w = high + 2 * edge - side + 1, broad + 2 * edge - side + 1
  blocks, parts = pl.cdiv(b * h * w, PIXELS), c // some

  def program(x_ref, k_ref, y_ref):
    pixel = _pixels(pl.program_id(0) * PIXELS, PIXELS)

    def step(i, y):
      tap, part = (op(i, jnp.int32(parts)) for op in (lax.div, lax.rem))
      row, is_there = _source(pixel, tap, side, edge, (b, h, w), (high, broad))
      channels = pl.ds(part * some, some)
      pixels = jnp.where(is_there[:, None], x_ref[row, channels], 0)
      return y + _dot(pixels, k_ref[tap, channels, :], how)

    start = jnp.zeros((PIXELS, o), x.dtype)
    y_ref[...] = lax.fori_loop(
      jnp.int32(0), jnp.int32(size * parts), step, start
    )

  y = _call(
    program,
    (blocks,),
    ((blocks * PIXELS, o), (PIXELS, o), lambda i: (i, 0)),
    (x.reshape(-1, c), kernel.reshape(size, c, o)),
  )
  return y[: b * h * w].reshape(b, h, w, o)


def _to_kernel(how, shape, x, dy):
  """Return dK [k, k, I, O]."""
  from jax.experimental import pallas as pl

  (b, high, broad, _), (_, h, w, _) = x.shape, dy.shape
  side, _, c, o = shape
  steps = pl.cdiv(pl.cdiv(b * h * w, PARTS), SOME)

  def program(x_ref, dy_ref, dk_ref):
    tap, part = pl.program_id(0), pl.program_id(1)

    def step(i, dk):
      pixel = _pixels((part * steps + i) * SOME, SOME)
      how_big = (b, h, w), (high, broad)
      row, is_there = _source(pixel, tap, side, how[0], *how_big)
      is_one = pixel < b * h * w
      pixels = jnp.where(is_there[:, None], x_ref[row, :], 0)
      g = jnp.where(is_one[:, None], dy_ref[jnp.where(is_one, pixel, 0), :], 0)
      return dk + _dot(pixels, g, how, trans_a=True)

    start = jnp.zeros((c, o), x.dtype)
    dk_ref[0, 0] = lax.fori_loop(jnp.int32(0), jnp.int32(steps), step, start)

  parts = _call(
    program,
    (side * side, PARTS),
    ((side**2, PARTS, c, o), (1, 1, c, o), lambda t, part: (t, part, 0, 0)),
    (x.reshape(-1, c), dy.reshape(-1, o)),
  )
  return parts.sum(1).reshape(shape)


def _to_input(how, x, kernel, dy):
  (edge, precision), turned = how, kernel[::-1, ::-1].swapaxes(2, 3)
  return conv(dy, turned, (len(kernel) - 1 - edge, precision))


conv = convolution(_convolve, _to_input, _to_kernel)


def _pixels(first, number):
  return first + jnp.arange(number, dtype=jnp.int32)


def _source(pixel, tap, side, edge, of, sides):
  """Return the row of x [B H W, I] that pixels of y read, and if it exists."""
  (b, h, w), (high, broad) = of, sides
  image = pixel // (h * w)
  u = (pixel // w) % h + tap // side - edge
  v = pixel % w + tap % side - edge
  is_there = (u >= 0) & (u < high) & (v >= 0) & (v < broad) & (image < b)
  return jnp.where(is_there, (image * high + u) * broad + v, 0), is_there


def _dot(a, b, how, *, trans_a=False):
  from jax.experimental.pallas import triton

  if target() == 'cpu':
    return lax.dot(a.T if trans_a else a, b, precision='highest')
  is_tf32 = how[1] in ((lax.Precision.HIGH,) * 2, (lax.Precision.DEFAULT,) * 2)
  preset = Preset.TF32_TF32_F32 if is_tf32 else Preset.TF32_TF32_F32_X3
  return triton.dot(a, b, trans_a=trans_a, precision=preset)


def _call(program, grid, result, arrays):
  """Return the result (shape, block, its place) of programs on whole arrays."""
  from jax.experimental import pallas as pl
  from jax.experimental.pallas import triton

  shape, block, place = result

  def whole(array):
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)

  return pl.pallas_call(
    program,
    grid=grid,
    out_shape=jax.ShapeDtypeStruct(shape, arrays[0].dtype),
    in_specs=[*map(whole, arrays)],
    out_specs=pl.BlockSpec(block, place),
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
    interpret=target() == 'cpu',
  )(*arrays)
