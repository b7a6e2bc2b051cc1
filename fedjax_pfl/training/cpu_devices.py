"""A CPU as several devices, one a core: `devices=2` on a machine without more.

Where batches are small, one client at a time leaves cores idle. As devices of
a mesh, every core trains clients of its own. At the end of a round each waits
for all others: minutes in a long round, or beside other work.
"""

import os

import jax

from fedjax_pfl.runs.provenance import num_cores

COUNT = 'xla_force_host_platform_device_count'  # the user's own choice
# XLA calls a device stuck that others wait for, and ends the process after one
# minute. How long clients take is not known to it.
LIMITS = (
  'xla_cpu_collective_call_warn_stuck_timeout_seconds',
  'xla_cpu_collective_call_terminate_timeout_seconds',
)
YEAR = 365 * 24 * 3600  # seconds


def divide_cpu(devices: int) -> None:
  """Let JAX see the CPU as this many devices; before it lists them.

  At most one for each core that the process may use; accelerators, where there
  are any, are not affected. What is no number is refused with the config.
  """
  given = os.environ.get('XLA_FLAGS', '')
  is_number = isinstance(devices, int) and 1 < devices <= num_cores()
  if not is_number or COUNT in given:
    return
  jax.config.update('jax_num_cpu_devices', devices)
  flags = [f'--{name}={YEAR}' for name in LIMITS if name not in given]
  os.environ['XLA_FLAGS'] = ' '.join([given, *flags]).strip()
