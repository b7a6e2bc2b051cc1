"""Measure speed against the limits of this machine, PyTorch, and the bars.

  python experiments/bench.py --model=convnet4,mobilenet --torch
  python experiments/bench.py --clients=2,10 --clients_per_chunk=1,2,10
  python experiments/bench.py --work=evaluation --torch
  python experiments/bench.py --bars=all       (make bench)
  python experiments/bench.py --bars=fedavg_cnn,simple_cnn
  python experiments/bench.py --methods=all

A line for every combination of the values, listed with commas: synthetic
32x32x3 images on the device; crop, flip and normalisation are part of the work.
Programs that are compared run in turn; the table shows medians of the repeats.
GFLOP/s are those of the direct algorithm, with the share of a large product;
memory is that of arguments, results and temporaries.

With --torch (pip install -e .[bench]) PyTorch at its best does the same work:
the last column is our speed relative to it, and experiments/benchmarks/
yardstick.py says what its best is. With --bars the bars of the project follow
(names, or all), with --methods the time of one gradient of each method relative
to FedAvg's.
"""

import os

import commandline
from absl import flags

LISTS = (
  flags.DEFINE_list('model', ['convnet4'], 'Names of models.'),
  flags.DEFINE_list('clients', None, 'Clients of a round.'),
  flags.DEFINE_list('steps', None, 'Batches of a client.'),
  flags.DEFINE_list('batch', None, 'Images of a batch.'),
  flags.DEFINE_list(
    'clients_per_chunk', None, 'Clients side by side, or auto.'
  ),
  flags.DEFINE_list('conv_impl', None, 'Convolutions.'),
  flags.DEFINE_list('devices', None, 'Devices to share them.'),
)
WORK = flags.DEFINE_list('work', ['training'], 'Training, evaluation, or both.')
METHODS = flags.DEFINE_list('methods', None, 'Methods against FedAvg; or all.')
BARS = flags.DEFINE_list('bars', None, 'Targets to measure; or all.')
REPEATS = flags.DEFINE_integer('repeats', 5, 'Timed repeats.', 1)
TORCH = flags.DEFINE_bool('torch', False, 'Run PyTorch in turn.')


def main():
  import jax

  from experiments.benchmarks import options
  from fedjax_pfl.core.machine import num_cores

  # For PyTorch's processes: ours have huge pages by themselves.
  os.environ.setdefault('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1')
  given = {one.name: one.value for one in LISTS if one.value is not None}
  cases = options.make_cases(given)
  works = options.values_of('work', WORK.value)
  methods, bars = (
    [] if flag.value is None else options.values_of(flag.name, flag.value)
    for flag in (METHODS, BARS)
  )
  options.check_together(cases, methods, TORCH.value)
  # Bars try one device a core.
  most = max(num_cores() if bars else 1, *(case.devices for case in cases))
  if most > 1:
    # A CPU has as many devices as JAX is told before it looks for them.
    jax.config.update('jax_num_cpu_devices', most)
  # Compilation is timed: no program may come from the cache.
  jax.config.update('jax_enable_compilation_cache', False)
  print(describe_machine())
  if methods:
    compare_methods(cases[0], methods)
  elif flags.FLAGS['model'].present or not bars:  # asked for bars alone: none
    measure_cases(cases, works)
  measure_bars(bars)


def measure_cases(cases, works) -> None:
  """Print a table for each kind of work."""
  from experiments.benchmarks import screen
  from experiments.benchmarks.measure import measure

  for work in works:
    rows = []
    for case in cases:
      commandline.log_progress(f'Measuring {work} of {case.model}')
      rows.append(measure(case, work, REPEATS.value, TORCH.value))
    print('', *screen.table(rows), sep='\n', flush=True)


def measure_bars(names) -> None:
  """Print the bars of these names as they are measured."""
  from experiments.benchmarks.bars import BARS

  for name in names:
    commandline.log_progress(f'Measuring the bars: {name}')
    for bar in BARS[name](REPEATS.value):
      print(*bar.lines(), sep='\n', flush=True)


def compare_methods(case, methods) -> None:
  """Print the time of a method's gradient over FedAvg's.

  A gradient's time is that of the round over its number of gradients, which is
  in the metrics. Each method runs in turn with FedAvg alone, so that the load
  of the machine affects both.
  """
  from experiments.benchmarks.programs import make_training
  from experiments.benchmarks.timing import in_turn, ratios, spread

  def start(name):
    run = make_training(case._replace(method=name)).run
    return run, int(run()[2]['num_steps'].sum())  # which also warms it up

  fedavg, own = start('fedavg')
  for name in methods:
    run, gradients = start(name)
    seconds = in_turn({'fedavg': fedavg, 'method': run}, REPEATS.value)
    over = ratios(seconds['method'], seconds['fedavg'])
    ratio = spread([one * own / gradients for one in over])
    print(
      f'{name:12} {gradients:4} gradients '
      f'{spread(seconds["method"]).median:8.3f} s a round {ratio.median:6.2f} '
      f'x FedAvg ({ratio.low:.2f} to {ratio.high:.2f})',
      flush=True,
    )


def describe_machine() -> str:
  """Return the machine of the measurements, and its load."""
  import jax

  load, cores = os.getloadavg()[0], os.cpu_count()
  text = (
    f'{cores} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}; '
    f'load {load:.1f} before the first measurement.'
  )
  if load > cores / 2:
    text += '\nThe machine is busy: ratios are not reliable.'
  return text


if __name__ == '__main__':
  commandline.run(main)
