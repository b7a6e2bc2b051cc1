"""Random keys of 256 bits: ChaCha20 as a generator of `jax.random`.

  block(k, n, i)   16 words of RFC 8439, section 2.3: key, nonce, counter
  bits             block(k, (0, 0, 0), 0), block(k, (0, 0, 0), 1), ..
  fold_in(k, x)    the first 8 words of block(k, (x, 0, 1), 0)
  split(k), key i  the first 8 words of block(k, (0, 0, 2), i)

Who does not know the key cannot tell these numbers from random ones, and cannot
guess it: JAX's own keys have 64 bits, of which a seed sets 32. A key works in
all functions of `jax.random`.
"""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl

from fedjax_pfl.core.types import Array, Key

SIZE = 32  # bytes of a secret
CONSTANTS = np.frombuffer(b'expand 32-byte k', '<u4')
BITS, FOLD, SPLIT = (0, 0, 0), 1, (0, 0, 2)  # nonces, or their last word


def blocks(key: Array, nonce: tuple, counters: Array) -> Array:
  """Return the words [n, 16] of these blocks; the key is [8] words."""
  size = counters.shape[0]

  def rows(four):  # [4, n]
    columns = [jnp.asarray(word, jnp.uint32) for word in four]
    return jnp.stack([jnp.broadcast_to(column, size) for column in columns])

  start = tuple(map(rows, (CONSTANTS, key[:4], key[4:], (counters, *nonce))))

  def two_rounds(_, state):  # columns, then diagonals
    a, b, c, d = _quarter_rounds(*state)
    b, c, d = jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0)
    a, b, c, d = _quarter_rounds(a, b, c, d)
    return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)

  end = lax.fori_loop(0, 10, two_rounds, start)
  return (jnp.concatenate(start) + jnp.concatenate(end)).T


def _quarter_rounds(a, b, c, d):
  for left, right in ((16, 12), (8, 7)):
    a = a + b
    d = _rotated(d ^ a, left)
    c = c + d
    b = _rotated(b ^ c, right)
  return a, b, c, d


def _rotated(x, bits):
  return (x << bits) | (x >> (32 - bits))


def _random_bits(key, width, shape):
  number = int(np.prod(shape, dtype=np.int64)) * max(1, width // 32)
  counters = jnp.arange(-(-number // 16), dtype=jnp.uint32)
  bits = blocks(key, BITS, counters).ravel()[:number]
  if width == 64:
    high, low = bits.reshape(2, -1).astype(jnp.uint64)
    bits = (high << 32) | low
  return bits.astype(f'uint{width}').reshape(shape)


def _fold_in(key, data):
  return blocks(key, (data, 0, FOLD), jnp.zeros(1, jnp.uint32))[0, :8]


def _split(key, shape):
  counters = jnp.arange(np.prod(shape), dtype=jnp.uint32)
  return blocks(key, SPLIT, counters)[:, :8].reshape(*shape, 8)


def _from_seed(seed):
  return jnp.zeros(8, jnp.uint32).at[0].set(seed.astype(jnp.uint32))


IMPL = define_prng_impl(
  key_shape=(8,),
  seed=_from_seed,
  split=_split,
  random_bits=_random_bits,
  fold_in=_fold_in,
  name='chacha20',
  tag='chacha',
)


def new_secret() -> bytes:
  """Return 256 bits of the system's entropy."""
  return secrets.token_bytes(SIZE)


def key_of(secret: bytes) -> Key:
  """Return the key of a secret."""
  data = np.frombuffer(secret, '<u4')
  return jax.random.wrap_key_data(jnp.asarray(data), impl=IMPL)


def as_fast(key: Key) -> Key:
  """Return a key of JAX's faster generator, drawn from one of this file.

  For the many random numbers of a client's training. Other keys stay.
  """
  if jax.random.key_impl(key) != IMPL:
    return key
  data = jax.random.bits(key, (2,), jnp.uint32)
  return jax.random.wrap_key_data(data, impl='threefry2x32')
