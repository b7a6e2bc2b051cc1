"""Compile a config for an accelerator that is not there; print what it takes:

  python experiments/compile_for.py --platform=tpu \\
      --config=configs/fedbabu_cifar10.py
  python experiments/compile_for.py --platform=cuda --topology=h100:8 \\
      --devices=4 --config=configs/digits.py:fedbabu,quick

Every round, beginning of a stage and the last evaluation is compiled in full:
minutes for a large model. No data set is needed, and nothing is run: these are
the compiler's numbers, not measurements. The packages that
compile are those of `make accelerators`. Status 1 if a program does not compile
or fit.
"""

import os
import sys

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
PLATFORM = flags.DEFINE_string('platform', 'cuda', 'tpu or cuda')
TOPOLOGY = flags.DEFINE_string(
  'topology', '', 'devices, e.g. v5e:2x2 or h100:8; those two if not given'
)
DEVICES = flags.DEFINE_integer('devices', 1, 'devices that share a round', 1)


def main(overrides):
  prepare_environment(PLATFORM.value)  # before jax is imported
  from experiments.accelerators import compilation, targets

  where = targets.make_where(PLATFORM.value, TOPOLOGY.value, DEVICES.value)
  config = commandline.read_settings(CONFIG.value, overrides)
  plan, records = compilation.plan_for(where, config), []
  for program, lowered in compilation.lowered_programs(where, plan):
    commandline.log_progress(f'Compiling {program.kind} of {program.stage}')
    records.append(compilation.compile_program(program, lowered, where.device))
  print(*compilation.lines(where, CONFIG.value, plan, records), sep='\n')
  if any(one['error'] for one in records):
    sys.exit(1)


def prepare_environment(platform):
  """Set the variables that jax and XLA read once, when they are imported."""
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
    given = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{given} --xla_gpu_enable_triton_gemm=false'


if __name__ == '__main__':
  commandline.run(main, required=['config'])
