"""A CPU as several devices, one a core: `devices=2` on a machine without more.

Where batches are small, one client at a time leaves cores idle. As devices of
a mesh, every core trains clients of its own.
"""

import os

import jax

FLAG = 'xla_force_host_platform_device_count'  # the user's own choice


def divide_cpu(devices: int) -> None:
  """Let JAX see the CPU as this many devices; before it lists them.

  At most one for each core that the process may use; accelerators, where there
  are any, are not affected. What is no number is refused with the config.
  """
  cores = len(os.sched_getaffinity(0))
  is_number = isinstance(devices, int) and 1 < devices <= cores
  if is_number and FLAG not in os.environ.get('XLA_FLAGS', ''):
    jax.config.update('jax_num_cpu_devices', devices)
