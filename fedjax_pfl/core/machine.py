"""What a process needs of its machine: cores as devices, and memory that stays.

Both are for CPUs alone, and happen with `import fedjax_pfl`.

A CPU is a device a core, if jax has not started: a program of one device uses
all cores as before, and a round may run on all devices (federated/sharding.py
decides). The user's own jax_num_cpu_devices is kept.

Memory that is freed stays with the process, in pages of 2 MiB, on Linux with
glibc: else every round asks the kernel for the memory of its arrays and gives
it back, and each page of 4 KiB is a fault. FEDJAX_PFL_MEMORY=system leaves all
that to the system.
"""

import ctypes
import os
import sys

import jax

# The user's own choice.
COUNT, VARIABLE = 'xla_force_host_platform_device_count', 'JAX_NUM_CPU_DEVICES'
# XLA calls a device stuck that others wait for, and ends the process after one
# minute. How long clients take is not known to it.
LIMITS = (
  'xla_cpu_collective_call_warn_stuck_timeout_seconds',
  'xla_cpu_collective_call_terminate_timeout_seconds',
)
YEAR = 365 * 24 * 3600  # seconds
MEMORY = 'FEDJAX_PFL_MEMORY'
# Of mallopt: never return memory, take it from one heap, in large steps.
OPTIONS = {-1: -1, -4: 0, -8: 1, -2: 2**26}
HUGE_PAGE, ADVICE = 2**21, 14  # bytes; MADV_HUGEPAGE


def num_cores() -> int:
  """Return how many cores this process may use."""
  if hasattr(os, 'sched_getaffinity'):  # Linux
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def divide_cpu(devices: int) -> None:
  """Let jax see the CPU as so many devices, if it has not listed them yet.

  Accelerators, where there are any, are not affected.
  """
  given = os.environ.get('XLA_FLAGS', '')
  if devices < 1 or COUNT in given or VARIABLE in os.environ:
    return
  try:
    jax.config.update('jax_num_cpu_devices', devices)
  except RuntimeError:  # jax has started
    return
  flags = [f'--{name}={YEAR}' for name in LIMITS if name not in given]
  os.environ['XLA_FLAGS'] = ' '.join([given, *flags]).strip()


def keep_memory() -> bool:
  """Let glibc keep what is freed, in huge pages; return whether it does."""
  if not sys.platform.startswith('linux'):
    return False
  if os.environ.get(MEMORY) == 'system':
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, 'gnu_get_libc_version'):
    return False
  for option, value in OPTIONS.items():
    libc.mallopt(option, value)
  # The heap begins with pages that are not there until they are written.
  size = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 2
  libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
  libc.free.argtypes = [ctypes.c_void_p]
  libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
  start = libc.malloc(size)
  if start:
    first = -(-start // HUGE_PAGE) * HUGE_PAGE
    libc.madvise(first, size - HUGE_PAGE, ADVICE)
    libc.free(start)
  return True


def prepare() -> None:
  """Divide the CPU, unless the user has, and keep memory."""
  keep_memory()
  if jax.config.jax_num_cpu_devices in (-1, None):
    divide_cpu(num_cores())
