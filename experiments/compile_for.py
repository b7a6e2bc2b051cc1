"""Compile a config for an accelerator that is not there; print what it takes:

  python experiments/compile_for.py --device=h100 \\
      --config=configs/fedbabu_cifar10.py

The round of each stage and, on one device, the last evaluation are compiled in
full: minutes for a large model. Neither a data set nor a device is needed, but
the packages of `make accelerators`. Status 1 if one does not compile or fit.
"""

import os
import sys

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
DEVICE = flags.DEFINE_string(
  'device', 'h100', 'h100, v5e, v4, v5p or v6e; several as h100:8'
)
NOTE = """
The compiler's numbers, not measurements; memory in MiB. Kernels, GFLOP and MB
of a program count each of its loops once; there are no GFLOP and MB of a GPU.
"""
ENVIRON = {
  'JAX_PLATFORMS': 'cpu',  # what there is may be another device
  'TPU_SKIP_MDS_QUERY': '1',  # no search for a metadata server
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',  # no device: nothing to lock
  # Else it logs on every start that there is no host with a TPU.
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  **{'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_WORKER_ID': '0'},
}


def main(overrides):
  os.environ.update(ENVIRON)  # before jax is imported
  import jax

  from experiments.accelerators import compilation, programs
  from fedjax_pfl.core.target import compiling_for
  from fedjax_pfl.results.tables.table import align

  device, number = compilation.find_device(DEVICE.value)
  config = commandline.read_settings(CONFIG.value, overrides)
  rows, errors = [compilation.HEADS], []
  with compiling_for(device.kind, device.memory):
    plan = programs.make_plan(config)
    places = compilation.describe(device, number)
    for program in programs.make_programs(plan, places):
      commandline.log_progress(f'Compiling {program.name}')
      lowered = jax.jit(program.function).lower(*program.arguments.values())
      cells, error = compilation.compile_program(program, lowered, device)
      rows.append(tuple(cells.values()))
      errors += [f'{program.name}: {error}'] if error else []
  print(f'{CONFIG.value} on {device.name}; jax {jax.__version__}')
  print(plan.dataset.note, align(rows), *errors, NOTE, sep='\n')
  sys.exit(bool(errors))


if __name__ == '__main__':
  commandline.run(main, required=['config'])
