"""The environment of a process that compiles for devices that are not there.

It imports neither jax nor the package, which imports jax: both read the
environment once.
"""

import os


def prepare(platform: str) -> None:
  """Set the variables that jax and XLA read when they are imported."""
  os.environ['JAX_PLATFORMS'] = 'cpu'  # what there is may be another device
  if platform == 'tpu':
    os.environ['TPU_SKIP_MDS_QUERY'] = '1'  # no search for a metadata server
    os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'  # no device: nothing to lock
    # Else it logs on every start that there is no host with a TPU.
    os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'v5litepod-4')
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    os.environ.setdefault('TPU_WORKER_ID', '0')
  elif platform == 'cuda':
    # Without a device nothing can be tuned; Triton's untuned tiles can exceed
    # the shared memory.
    flags = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{flags} --xla_gpu_enable_triton_gemm=false'
