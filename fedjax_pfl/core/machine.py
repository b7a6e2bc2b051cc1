"""The CPU of this machine: its cores as devices, and calls from programs.

With `import fedjax_pfl` a CPU is a device a core, if jax has not started and
the user has not chosen: a program of one device uses all cores as before, and a
round may run on all devices (federated/sharding.py decides).
"""

import mmap
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core.types import Array

# The user's own choice.
COUNT, VARIABLE = 'xla_force_host_platform_device_count', 'JAX_NUM_CPU_DEVICES'
# XLA calls a device stuck that others wait for, and ends the process after one
# minute. How long clients take is not known to it.
LIMITS = (
  'xla_cpu_collective_call_warn_stuck_timeout_seconds',
  'xla_cpu_collective_call_terminate_timeout_seconds',
)
YEAR = 365 * 24 * 3600  # seconds
BLOCK = 64 * 1024  # bytes


def num_cores() -> int:
  """Return how many cores this process may use."""
  if hasattr(os, 'sched_getaffinity'):  # Linux
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def divide_cpu(devices: int) -> None:
  """Let jax see the CPU as so many devices, if it has not listed them yet."""
  given = os.environ.get('XLA_FLAGS', '')
  if devices < 1 or COUNT in given or VARIABLE in os.environ:
    return
  try:
    jax.config.update('jax_num_cpu_devices', devices)
  except RuntimeError:  # jax has started
    return
  flags = [f'--{name}={YEAR}' for name in LIMITS if name not in given]
  os.environ['XLA_FLAGS'] = ' '.join([given, *flags]).strip()


def prepare() -> None:
  """Divide the CPU, unless the user has."""
  if jax.config.jax_num_cpu_devices in (-1, None):
    divide_cpu(num_cores())


def read_ahead(file: np.memmap, first: np.ndarray, stop: np.ndarray) -> None:
  """Let the system read rows first[i] to stop[i] while the program goes on.

  Without it the program waits for page after page, and the system reads what
  lies around each: for a small client anywhere in a file four times as much.
  """
  if not hasattr(mmap, 'MADV_WILLNEED'):  # on Windows
    return
  where, size = np.frombuffer(file._mmap, np.uint8).ctypes.data, file.strides[0]
  for begin, end in zip(first.tolist(), stop.tolist(), strict=True):
    begin, end = (file.ctypes.data - where + size * row for row in (begin, end))
    begin -= begin % mmap.PAGESIZE
    file._mmap.madvise(mmap.MADV_WILLNEED, begin, end - begin)


def call_on_host(fn: Callable, result: Any, *arrays: Array) -> Any:
  """Return fn(*arrays), which the host computes from numpy arrays.

  `result`: shapes and types, as those of `jax.pure_callback`. JAX copies
  arguments of a callback of more than 100 KiB in a thread of its own, and all
  threads of a CPU that is divided into devices may be waiting for the result:
  the program never ends. Blocks of rows are copied at once.
  """

  def on_host(*arguments):
    return fn(*(np.concatenate(list(map(np.asarray, a))) for a in arguments))

  def blocks(array):
    row = array.dtype.itemsize * array[:1].size
    rows = max(1, BLOCK // max(1, row))
    firsts = range(0, max(1, len(array)), rows)
    return [array[first : first + rows] for first in firsts]

  return jax.pure_callback(on_host, result, *map(blocks, arrays))
