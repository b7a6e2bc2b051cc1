"""Call the host from a program of several devices; print what follows.

PYTHONPATH=.:tests/support python -m host_calls
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.machine import call_on_host
from fedjax_pfl.federated.sharding import make_mesh, replicate


def twice_the_sum(x):
  """Return the largest of the partial sums by the host, and the last."""
  rows = jnp.cumsum(x)
  largest = call_on_host(
    lambda rows: rows.max(), jax.ShapeDtypeStruct((), rows.dtype), rows
  )
  return largest + rows[-1]  # on all devices: they wait for the host


if __name__ == '__main__':
  mesh = make_mesh(jax.device_count())
  call = replicate(twice_the_sum, mesh)
  for size in 1_000, *[1_000_000] * 20:  # in 62 blocks; 20 times for a race
    print(int(call(np.ones(size, np.int32))))
