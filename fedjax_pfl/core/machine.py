"""The cores of a CPU as devices of jax.

With `import fedjax_pfl` a CPU is a device a core, if jax has not started: a
program of one device uses all cores as before, and a round may run on all
devices (federated/sharding.py decides). The user's own choice is kept.
"""

import os

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


def prepare() -> None:
  """Divide the CPU, unless the user has."""
  if jax.config.jax_num_cpu_devices in (-1, None):
    divide_cpu(num_cores())
