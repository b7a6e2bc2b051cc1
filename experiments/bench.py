"""Measure speed against the limits of this machine, PyTorch, and the bars.

  python experiments/bench.py --bars=all       (make bench)
  python experiments/bench.py --bars=fedavg_cnn,simple_cnn,startup

A bar is a model of experiments/benchmarks/cases.py, trained or evaluated on
synthetic 32x32x3 images on the device, or another name in bars.py. Crop, flip
and normalisation are part of the work. Programs that are compared run in turn;
the numbers are medians of the repeats, and ratios those of runs that follow
each other. GFLOP/s are those of the direct algorithm.

With PyTorch (pip install -e .[bench]), at its best, the same work is its
yardstick: experiments/benchmarks/yardstick.py says what its best is.
"""

import os

import commandline
from absl import flags

BARS = flags.DEFINE_list('bars', ['all'], 'Targets to measure; or all.')
REPEATS = flags.DEFINE_integer('repeats', 5, 'Timed repeats.', 1)


def main():
  import jax

  from experiments.benchmarks import bars
  from fedjax_pfl.core.machine import num_cores
  from fedjax_pfl.core.rules import one_of

  # For PyTorch's processes; what is typed is started without.
  os.environ.setdefault('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1')
  names = [*bars.BARS] if 'all' in BARS.value else BARS.value
  for name in names:
    one_of(['all', *bars.BARS], 'names of bars').check('bars', name)
  # Bars try one device a core, and a CPU has as many devices as JAX is told
  # before it looks for them.
  jax.config.update('jax_num_cpu_devices', num_cores())
  # Compilation is timed: no program may come from the cache.
  jax.config.update('jax_enable_compilation_cache', False)
  print(describe_machine())
  for name in names:
    commandline.log_progress(f'Measuring the bars: {name}')
    for bar in bars.BARS[name](REPEATS.value):
      print(*bar.lines(), sep='\n', flush=True)


def describe_machine() -> str:
  """Return the machine of the measurements, and its load."""
  import jax

  from fedjax_pfl.core.machine import num_cores

  load, cores = os.getloadavg()[0], num_cores()
  text = (
    f'{cores} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}; '
    f'load {load:.1f} before the first measurement.'
  )
  if load > cores / 2:
    text += '\nThe machine is busy: ratios are not reliable.'
  return text


if __name__ == '__main__':
  commandline.run(main)
