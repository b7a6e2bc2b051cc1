"""The platform that a program is compiled for: 'cpu', 'gpu' or 'tpu'.

Code that is traced asks `target()`, never `jax.default_backend()`: a program
may be compiled for a device that this machine does not have, and then the
backend here says nothing about it.

  with compiling_for('tpu'):
    round_fn.lower(*arguments).compile()   # arguments placed on TPU devices

JAX keeps what it has traced. One process compiles for one platform: functions
that were traced for another would be found again.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import jax

from fedjax_pfl.core.errors import bad_input


class Kind(NamedTuple):
  """The devices of a platform, as far as programs depend on them."""

  launches: bool  # each kernel by itself, which takes microseconds


KINDS = {
  'cpu': Kind(launches=False),
  'gpu': Kind(launches=True),
  'tpu': Kind(launches=False),  # one program runs all operations
}

_TARGET: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'target', default=None
)
_MEMORY: contextvars.ContextVar[int | None] = contextvars.ContextVar(
  'memory', default=None
)


def target() -> str:
  """Return what programs are compiled for: by default, this machine's backend.

  >>> target()
  'cpu'
  """
  return _TARGET.get() or jax.default_backend()


def target_kind() -> Kind:
  """Return the record of the devices that programs are compiled for.

  >>> target_kind().launches
  False
  """
  return KINDS[target()]


def target_memory() -> int | None:
  """Return the bytes of the device of `compiling_for`; None: ask the device.

  >>> target_memory() is None
  True
  """
  return _MEMORY.get()


@contextlib.contextmanager
def compiling_for(platform: str, memory: int | None = None) -> Iterator[None]:
  """Trace what is inside for this platform, for a device with this memory."""
  if platform not in KINDS:
    raise bad_input(
      'platform',
      got=platform,
      expected='a kind of device',
      choices=KINDS,
      cause='a typing error; an NVIDIA or AMD device is a gpu',
    )
  tokens = _TARGET.set(platform), _MEMORY.set(memory)
  try:
    yield
  finally:
    _TARGET.reset(tokens[0])
    _MEMORY.reset(tokens[1])
