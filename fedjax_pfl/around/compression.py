"""Compressed uploads, around any method: QSGD, top-k with memory, DRIVE.

d are the n numbers of a leaf of a change (exchange.py), m what arrives of them.

qsgd (Alistarh et al. 2017), in each bucket b of 512 numbers, for s levels:
  m_j = sign(d_j) |b|/s floor(s |d_j| / |b| + u_j)       u_j ~ U[0, 1)
topk (Stich et al. 2018), k = ceil(share n), e = 0 at first:
  m   = those k of the d + e that are largest in size;   e <- d + e - m
drive (Vargaftik et al. 2021), in each block b of 1,024 numbers:
  r   = H D b,   m = D H^-1 (S sign(r)),   S = |b|_2^2 / |r|_1

H is Hadamard's matrix, over its norm; D are random signs. QSGD is unbiased: the
mean of m over u is d. So is DRIVE under a uniform rotation; under H D it is so
in the direction of d, and nearly so in others if no few numbers outweigh the
rest. Top-k is not: what it leaves out stays with the client, in e.

On the wire: ceil(log2(2s + 1)) bits a number and 32 a bucket; 32 bits and an
index of 8, 16 or 32 for each of k numbers; one bit a number, 32 a block, and
the key of D.

Compressed are floats that are changes of a model which both sides know. As it
is goes all else, and a leaf whose message would be no smaller. Downloads are
not compressed: a client does not hold the model of the round before.

Differs from the papers: QSGD's |b| is the largest |b_j| instead of the 2-norm,
which is as unbiased and has less variance, and codes have a fixed length
instead of Elias's; DRIVE rotates blocks, not the whole vector.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from fedjax_pfl.around.exchange import exchanging
from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.rules import Rule, interval, is_int, one_of
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.communication import Counted, messages

BUCKET, BLOCK = 512, 1024  # numbers that share a norm, and a rotation


LEVELS = Rule(
  lambda value: is_int(value) and 1 <= value <= 127,
  'a whole number of levels, 1 to 127: a number has 8 bits at most',
  'bits instead of levels: 7 levels with a sign are 4 bits',
)
NONE = 'none'


@record('compression_')
class Compression:
  """How uploads are compressed.

  Args:
    name: the compressor of what clients send; none: they send it as it is
    levels: of qsgd, beside 0 and the sign: 7 are 4 bits a number
    share: of topk: the part of the numbers of a leaf that is sent
  """

  name: str = field(
    NONE, one_of((NONE, 'qsgd', 'topk', 'drive')), name='compression'
  )
  levels: int = field(7, LEVELS, needs=('compression', 'qsgd'), only=True)
  share: float = field(
    0.05,
    interval('(0, 1]', 'a percentage', 'a share'),
    needs=('compression', 'topk'),
    only=True,
  )

  def __bool__(self) -> bool:
    return self.name != NONE


class Codec(NamedTuple):
  """The numbers [n] of a leaf as a message, and what arrives of it."""

  encode: Callable[[Array, Key], PyTree]
  decode: Callable[[PyTree, int], Array]


@struct.dataclass
class Packed:
  """A leaf as it travels."""

  parts: PyTree
  shape: tuple[int, ...] = struct.field(pytree_node=False)


def compressed(
  stage: Stage,
  compression: Compression,
  decoded: bool = False,
  is_first: bool = True,
) -> Stage:
  """Return the stage with clients that compress what they send.

  decoded: messages are what the server makes of them, counted as the bits that
  travel: for a wrapper outside that reads changes, such as one that clips.
  is_first: whether clients of this stage have just been made, with a memory.
  """
  codec = CODECS[compression.name](compression)

  def send(change, memory, rng):
    if memory:
      change = jax.tree.map(jnp.add, change, memory)
    message = encode(codec, change, rng)
    if decoded or memory:
      arrives = decode(codec, message)
    if memory:
      memory = jax.tree.map(jnp.subtract, change, arrives)
    if decoded:
      message = Counted(arrives, trees.num_bytes(message))
    return message, memory, {}

  def receive(messages, senders, value):
    if decoded or not jax.tree.leaves(messages):  # a stage that sends no model
      changes = messages.content if decoded else messages
      return changes, senders, value
    return jax.vmap(partial(decode, codec))(messages), senders, value

  has_memory = compression.name == 'topk'
  return exchanging(
    stage,
    'compression',
    send,
    receive,
    memory=trees.zeros if has_memory else None,
    of_model=True,
    begins_anew=has_memory and not is_first,
  )


def check_uploads(
  name: str, shapes: Sequence[tuple[Stage, Server, Client]], data: ClientData
) -> None:
  """Refuse a method of which no upload is smaller; traced on these shapes."""

  is_smaller = lambda leaf: isinstance(leaf, Packed | Counted)
  for stage, *states in shapes:
    up = messages(stage, *states, data).up
    if any(map(is_smaller, jax.tree.leaves(up, is_leaf=is_smaller))):
      return
  raise bad_input(
    'compression',
    got=f'{name} with {stage.name}',
    expected='none with this method: no upload of it is a change of a model '
    'that both sides know, or none gets smaller',
    choices=[
      'compression=none',
      *['compression_share=0.05'] * name.startswith('topk'),
    ],
    cause='a method that sends class means, directions, or models of its own',
  )


# ---- A change, leaf by leaf --------------------------------------------------


def encode(codec: Codec, change: PyTree, rng: Key) -> PyTree:
  """Return the tree with leaves that are `Packed` where that is smaller."""
  leaves, structure = jax.tree.flatten(change)
  as_it_is = jax.tree.leaves(norm_stats.mask(change))

  def sent(number, leaf):
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
    if as_it_is[number] or not is_float or leaf.size < 2:
      return leaf
    parts = codec.encode(leaf.reshape(-1), jax.random.fold_in(rng, number))
    is_smaller = trees.num_bytes(parts) < trees.num_bytes(leaf)
    return Packed(parts, leaf.shape) if is_smaller else leaf

  return structure.unflatten(map(sent, range(len(leaves)), leaves))


def decode(codec: Codec, message: PyTree) -> PyTree:
  """Return the change that arrives."""

  def arrived(leaf):
    if not isinstance(leaf, Packed):
      return leaf
    return codec.decode(leaf.parts, math.prod(leaf.shape)).reshape(leaf.shape)

  is_packed = lambda leaf: isinstance(leaf, Packed)
  return jax.tree.map(arrived, message, is_leaf=is_packed)


def in_rows(x: Array, size: int) -> Array:
  """Return the numbers [n] in rows of so many, the last one padded by 0."""
  return jnp.pad(x, (0, -len(x) % size)).reshape(-1, size)


def qsgd(compression: Compression) -> Codec:
  levels, bits = compression.levels, (2 * compression.levels).bit_length()

  def encode(x, key):
    rows = in_rows(x, min(BUCKET, len(x)))
    norm = jnp.max(jnp.abs(rows), axis=1)
    size = jnp.abs(rows) / jnp.where(norm > 0, norm, 1)[:, None]
    level = jnp.floor(levels * size + jax.random.uniform(key, rows.shape))
    code = levels + jnp.sign(rows) * jnp.minimum(level, levels)
    code = code.astype(jnp.uint8).reshape(-1)[: len(x)]
    planes = jnp.stack([(code >> bit) & 1 for bit in range(bits)])
    return jnp.packbits(planes, axis=1), norm

  def decode(parts, length):
    planes, norm = parts
    planes = jnp.unpackbits(planes, axis=1, count=length)
    code = sum(plane << bit for bit, plane in enumerate(planes))
    signed = code.astype(norm.dtype) - levels
    rows = in_rows(signed, min(BUCKET, length))
    return (rows * (norm / levels)[:, None]).reshape(-1)[:length]

  return Codec(encode, decode)


def topk(compression: Compression) -> Codec:
  def encode(x, key):
    wanted = compression.share * len(x)
    number = math.ceil(wanted - 1e-9)  # 0.07 * 100 is 7.00..1
    _, places = lax.top_k(jnp.abs(x), number)
    return x[places], places.astype(np.min_scalar_type(len(x) - 1))

  def decode(parts, length):
    values, places = parts
    return jnp.zeros(length, values.dtype).at[places].set(values)

  return Codec(encode, decode)


def drive(compression: Compression) -> Codec:
  def encode(x, key):
    seed = jax.random.bits(key, dtype=jnp.uint32)
    rows = in_rows(x, _block(len(x)))
    rotated = hadamard(_signs(seed, rows) * rows)
    size = jnp.sum(jnp.abs(rotated), axis=1)
    scale = jnp.sum(rotated**2, axis=1) / jnp.where(size > 0, size, 1)
    return jnp.packbits(rotated >= 0), scale, seed

  def decode(parts, length):
    bits, scale, seed = parts
    size = _block(length)
    bits = jnp.unpackbits(bits, count=len(scale) * size).reshape(-1, size)
    rows = scale[:, None] * (2 * bits.astype(scale.dtype) - 1)
    return (_signs(seed, rows) * hadamard(rows)).reshape(-1)[:length]

  return Codec(encode, decode)


def _block(length: int) -> int:
  """Return how many numbers are rotated together, a power of two."""
  return min(BLOCK, 1 << (length - 1).bit_length())


def _signs(seed: Array, rows: Array) -> Array:
  """Return the diagonal of D, from one random bit a number."""
  drawn = jax.random.bits(jax.random.key(seed), (-(-rows.size // 8),), 'uint8')
  bits = jnp.unpackbits(drawn, count=rows.size).reshape(rows.shape)
  return 2 * bits.astype(rows.dtype) - 1


def hadamard(rows: Array) -> Array:
  """Return H of each row [B, 2^m], H H = I: two products of small matrices."""
  from scipy import linalg  # 0.2 s, which other codecs do not need

  size = rows.shape[1]
  left = 1 << (size.bit_length() // 2)
  turned = jnp.einsum(
    'lm,bmn,nr->blr',
    linalg.hadamard(left, np.float32),
    rows.reshape(len(rows), left, size // left),
    linalg.hadamard(size // left, np.float32),
    precision='highest',
  )
  return turned.reshape(rows.shape) / math.sqrt(size)


CODECS = {'qsgd': qsgd, 'topk': topk, 'drive': drive}
