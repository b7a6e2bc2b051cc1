"""ChaCha20 against RFC 8439, and as keys of jax.random."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import chacha

KEY = bytes(range(chacha.SIZE))
# RFC 8439, section 2.3.2: nonce, counter 1, and the block.
NONCE = '000000090000004a00000000'
BLOCK = (
  '10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e'
  'd2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e'
)


def test_a_block_is_that_of_the_rfc():
  words = jnp.asarray(np.frombuffer(KEY, '<u4'))
  nonce = tuple(np.frombuffer(bytes.fromhex(NONCE), '<u4'))
  (got,) = chacha.blocks(words, nonce, jnp.array([1], jnp.uint32))
  assert np.asarray(got).astype('<u4').tobytes().hex() == BLOCK


def test_keys_and_numbers_of_one_secret_are_all_different():
  """Bits, folded keys and divided keys are different blocks."""
  key = chacha.key_of(KEY)
  fold = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))
  words = [
    jax.random.bits(key, (500, 8)),
    jax.random.key_data(fold(key, jnp.arange(500))),
    jax.random.key_data(jax.random.split(key, 500)),
    jax.random.bits(chacha.key_of(KEY[::-1]), (500, 8)),
  ]
  rows = np.concatenate(words)
  assert len(np.unique(rows, axis=0)) == len(rows)
  share = np.unpackbits(rows.view(np.uint8)).mean()
  assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(rows.size * 32)
  assert np.array_equal(
    jax.random.bits(key, (3, 20)).ravel(), jax.random.bits(key, (60,))
  )


def test_fast_keys_are_those_of_jax():
  own = jax.random.key(3)
  assert chacha.as_fast(own) is own
  fast = chacha.as_fast(chacha.key_of(KEY))
  assert fast.dtype == own.dtype
  other = chacha.as_fast(jax.random.fold_in(chacha.key_of(KEY), 1))
  assert not np.array_equal(*map(jax.random.key_data, (fast, other)))
