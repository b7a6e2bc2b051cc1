"""Convolutions as matrix products, on images [C, H, W, B].

With the batch last, a shift or a stride in space moves whole runs of B
numbers, and every product below contracts the way that is fast on a CPU
(a transposed left operand costs twice as much):

  y = K^T P,  dK = P dy^T,  dP = K dy,  P = patches [k k C, h w B] of x
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.models import winograd
from fedjax_pfl.models.passes import combine, one_pass, pad
from fedjax_pfl.types import Array

Edges = tuple[tuple[int, int], tuple[int, int]]  # zeros around rows, columns

# From so many input channels on, fewer products are worth the transforms.
WINOGRAD_FROM = 16


def conv(x: Array, kernel: Array, *, stride: int, padding: int) -> Array:
  """Convolve x [C, H, W, B] with kernel [k, k, C, O] to [O, h, w, B]."""
  plain = (kernel.shape[:2], stride, padding) == ((3, 3), 1, 1)
  if plain and kernel.shape[2] >= WINOGRAD_FROM:
    return winograd.conv(x, kernel)
  return _conv(x, kernel, stride, ((padding, padding),) * 2)


def phases(x: Array, kernel: Array) -> list[Array]:
  """Return y[:, p::2, q::2] for p, q of y = conv 3x3 of x [C, 2h, 2w, B]."""
  if kernel.shape[2] >= WINOGRAD_FROM:
    tile = (-1, x.shape[1] // 2, x.shape[2] // 2, x.shape[3])
    return [y.reshape(tile) for y in winograd.phases(x, kernel)]
  return [
    _conv(x, kernel, 2, ((1 - p, p), (1 - q, q)))
    for p in (0, 1) for q in (0, 1)
  ]  # fmt: skip


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _conv(x: Array, kernel: Array, stride: int, edges: Edges) -> Array:
  return _conv_forward(x, kernel, stride, edges)[0]


def _conv_forward(x, kernel, stride, edges):
  taps = _taps(x, kernel.shape[0], stride, edges)
  patches = jnp.concatenate(taps).reshape(-1, taps[0][0].size)
  k = kernel.reshape(-1, kernel.shape[-1])
  y = lax.dot(k.T, patches).reshape(-1, *taps[0].shape[1:])
  return y, (patches, kernel, x[:0])


def _conv_backward(stride, edges, saved, dy):
  patches, kernel, x = saved
  size, _, c, o = kernel.shape
  dk = lax.dot(patches, dy.reshape(o, -1).T).reshape(kernel.shape)
  taps = lax.dot(kernel.reshape(-1, o), dy.reshape(o, -1))
  taps = taps.reshape(size * size, c, *dy.shape[1:])
  return _fold(list(taps), size, stride, edges, x.shape), dk


_conv.defvjp(_conv_forward, _conv_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def depthwise(x: Array, kernel: Array, stride: int, padding: int) -> Array:
  """Convolve each channel of x [C, H, W, B] with its kernel [k, k, C]."""
  return _depthwise_forward(x, kernel, stride, padding)[0]


def _depthwise_forward(x, kernel, stride, padding):
  @one_pass
  def multiply_add(taps, k):
    return combine([(1, t * k[i]) for i, t in enumerate(taps)])

  edges = ((padding, padding),) * 2
  k = kernel.reshape(-1, kernel.shape[-1], 1, 1, 1)
  y = multiply_add(_taps(x, kernel.shape[0], stride, edges), k)
  return y, (x, kernel)


def _depthwise_backward(stride, padding, saved, dy):
  x, kernel = saved
  edges = ((padding, padding),) * 2
  size = kernel.shape[0]
  taps = _taps(x, size, stride, edges)
  dk = jnp.stack([jnp.einsum('chwb,chwb->c', t, dy) for t in taps])
  k = kernel.reshape(-1, kernel.shape[-1], 1, 1, 1)
  dx = _fold([t * dy for t in k], size, stride, edges, x.shape)
  return dx, dk.reshape(kernel.shape)


depthwise.defvjp(_depthwise_forward, _depthwise_backward)


def _taps(x: Array, size: int, stride: int, edges: Edges) -> list[Array]:
  """Return x as each of the size*size taps of the kernel sees it."""
  if size == 1 and stride == 1:
    return [x]
  x = pad(x, *edges)
  rows, columns = x.shape[1] - size + 1, x.shape[2] - size + 1
  return [
    x[:, u : u + rows : stride, v : v + columns : stride]
    for u in range(size) for v in range(size)
  ]  # fmt: skip


def _fold(taps: list[Array], size, stride, edges: Edges, shape) -> Array:
  """Return the sum of the taps at their places in x: _taps transposed.

  Taps that meet the same rows and columns modulo the stride are added up
  shifted; then the sums are interleaved.
  """
  if size == 1 and stride == 1:
    return taps[0]
  high, wide = (-(-(n + sum(e)) // stride) for n, e in zip(shape[1:3], edges))  # noqa: B905
  _, h, w, b = taps[0].shape

  def add(p, q):
    return combine([
      (1, pad(taps[u * size + v], (u // stride, high - h - u // stride),
              (v // stride, wide - w - v // stride)))
      for u in range(p, size, stride) for v in range(q, size, stride)
    ])  # fmt: skip

  zero = jnp.zeros((shape[0] if shape[0] else taps[0].shape[0], high, wide, b), taps[0].dtype)
  every = range(stride)
  sums = [[add(p, q) for q in every] for p in every]
  sums = [[zero if s is None else s for s in row] for row in sums]
  y = jnp.stack([jnp.stack(row, 3) for row in sums], 2)
  y = y.reshape(-1, stride * high, stride * wide, b)
  (top, _), (left, _) = edges
  return y[:, top : top + shape[1], left : left + shape[2]]
