"""The platform that a program is compiled for: 'cpu', 'gpu' or 'tpu'.

Code that is traced asks `target()`, never `jax.default_backend()`: a program
may be compiled for a device that this machine does not have.

  with compiling_for('tpu'):
    round_fn.lower(*arguments).compile()   # arguments placed on TPU devices

JAX keeps what it has traced, so that one process compiles for one platform.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_pfl.core.types import PyTree

# Options for a program that is only compiled, to know its memory. On a CPU
# unoptimised code has the same buffers, and compiles faster.
NEVER_RUN = {
  'cpu': {
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True,
  },
  'tpu': {},
}
# Options for a program that runs. On a GPU XLA tries out kernels, which takes
# minutes, and chooses others in each start; these are chosen by rules.
UNTUNED = {
  'xla_gpu_autotune_level': 0,
  'xla_gpu_enable_triton_gemm': False,
  'xla_gpu_experimental_enable_fusion_autotuner': False,
}


class Card(NamedTuple):
  """What `auto` is on a kind of device; the precision is float32 on all."""

  conv_impl: str  # of a module that models/registry.py says nothing else of
  full_step: float  # FLOPs of a client's step above which it runs alone


# On a GPU by counts, not yet measured: 20 GFLOP take 0.4 ms at 50 TFLOP/s, as
# long as 150 launches, and XLA has no grouped kernel gradients; at batch 50
# ResNet-18 has 185 GFLOP, MobileNet 13, 4convNet 1.3 (by tiles). On a CPU one
# client fills the cores; a TPU's compiler gains nothing from several.
CARDS = dict(cpu=Card('gemm', 0), gpu=Card('fused', 2e10), tpu=Card('fused', 0))
# The platform and its memory that `compiling_for` says; None: this machine's.
_TARGET = contextvars.ContextVar('target', default=(None, None))


def target() -> str:
  """Return what programs are compiled for; by default this machine's."""
  return _TARGET.get()[0] or jax.default_backend()


def launches_kernels() -> bool:
  """Return whether a kernel is launched by itself, which takes microseconds."""
  return target() == 'gpu'


def target_memory() -> int | None:
  """Return the bytes of the device of `compiling_for`; None: ask the device."""
  return _TARGET.get()[1]


def compiler_options(*, runs: bool = True) -> dict[str, int | bool] | None:
  """Return what XLA is told of a program; of the outermost jit alone.

  `jit` refuses options of a function that another one calls.
  """
  if target() == 'gpu':
    return dict(UNTUNED)
  return None if runs else dict(NEVER_RUN[target()])


def card() -> Card:
  """Return the defaults of the target."""
  return CARDS[target()]


@contextlib.contextmanager
def compiling_for(platform: str, memory: int | None = None) -> Iterator[None]:
  """Trace what is inside for this platform, for a device with this memory."""
  token = _TARGET.set((platform, memory))
  try:
    yield
  finally:
    _TARGET.reset(token)


def one_pass(f: Callable) -> Callable:
  """Return f(*arrays, **constants) as a pass apart from its readers'.

  On a CPU XLA fuses an elementwise result into each of its readers and computes
  it again for each one: the 16 readers of a gradient in `winograd.py` took 50
  ms, writing it once takes 1 ms. There `lax.optimization_barrier` is removed
  before fusion; a call that is not inlined is kept. Inside f call lax instead
  of jnp: functions that jnp jits would be separate passes. Keyword arguments
  are no arrays: there is a pass for each of their values.
  """

  @functools.cache
  def jitted(*constants):
    fixed = functools.partial(f, **dict(constants))
    return jax.jit(functools.update_wrapper(fixed, f))

  @functools.wraps(f)
  def call(*arrays, **constants):
    if target() != 'cpu':
      return f(*arrays, **constants)
    with set_xla_metadata(inlineable='false'):
      return jitted(*constants.items())(*arrays)

  return call


def gradients_alone(params: PyTree) -> PyTree:
  """Return params, whose gradients XLA does not fuse with their update.

  On a GPU XLA lets the product that computes a kernel's gradient add it to the
  momentum, which it multiplies before in a pass of its own: three more accesses
  to each kernel (MobileNet on an H100: 24.1 instead of 23.4 MB an image).
  """
  return _alone(params) if target() == 'gpu' else params


@jax.custom_jvp
def _alone(params):
  return params


@_alone.defjvp
def _alone_jvp(primals, tangents):  # transposed: a barrier for the gradients
  return *primals, *map(lax.optimization_barrier, tangents)
