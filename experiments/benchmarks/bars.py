"""The bars of the project: limits of what is measured, by name.

The function of a name takes the number of repeats and yields its bars. A bar
that cannot be measured on this machine gives the reason, and is neither met nor
missed.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax

from experiments import commandline
from experiments.benchmarks import limits, yardstick
from experiments.benchmarks.cases import MODELS, Case, standard_case
from experiments.benchmarks.measure import (
  NO_TORCH,
  Measured,
  has_torch,
  measure,
)
from experiments.benchmarks.screen import Bar
from experiments.benchmarks.timing import spread

# FedBABU on CIFAR-100, in full size.
ON_GPU = Case('mobilenet', 100, 10, method='fedbabu', num_classes=100, epochs=5)
ROUNDS = 320
STARTED = ('digits.py:fedbabu', 'fedbabu_cifar100.py:quick')
STARTS = {'first': 20, 'second': 6}  # seconds
# Not of a user: main.py has its own.
UNSET = ('FEDJAX_PFL_CACHE', 'JAX_COMPILATION_CACHE_DIR', 'GLIBC_TUNABLES')
PERIOD = 0.02  # seconds between two checks


def training(model: str, repeats: int) -> Iterator[Bar]:
  """Yield local training with a model against PyTorch at its best."""
  for case in MODELS[model].cases:
    yield _against_torch(case, 'training', repeats)
  if model == 'convnet4':
    one = measure(standard_case(model), 'training', repeats, has_torch())
    share, low, high = (100 * part for part in one.share_of_product())
    yield Bar(
      f'{MODELS[model].name}, share of the product peak',
      share,
      50,
      '%',
      'at least',
      f'{low:.0f} to {high:.0f} % in {repeats} repeats; FLOPs of the direct '
      'convolutions',
    )


def evaluation(repeats: int) -> Iterator[Bar]:
  """Yield fine-tuning and evaluation of all clients against PyTorch."""
  for model, row in MODELS.items():
    if row.is_evaluated:
      yield _against_torch(standard_case(model), 'evaluation', repeats)


def _against_torch(case: Case, work: str, repeats: int) -> Bar:
  row, measured, how = MODELS[case.model], None, NO_TORCH
  words = '' if work == 'training' else ', fine-tuning evaluation'
  if has_torch():
    one = measure(yardstick.at_our_best(case, work), work, repeats, True)
    typed = one.against_torch(as_typed=True) or one.against_torch()
    measured, how = typed.median, how_measured(one)
  name = f'{row.name}, batch {case.batch}{words}'
  return Bar(name, measured, row.limit, 'x PyTorch', 'at least', how)


def how_measured(one: Measured) -> str:
  """Return what ran, against what, the spread, and what did not take part."""
  ratio, images = one.against_torch(), one.rate(one.images).median
  words = (
    f'{yardstick.words(one.case.devices)} against {one.torch_variant}: '
    f'{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) in '
    f'{len(one.seconds)} repeats; {images:,.0f} images/s'
  )
  if typed := one.against_torch(as_typed=True):
    words = f'as typed, {typed.low:.2f} to {typed.high:.2f}; best form: {words}'
  left_out = yardstick.ranking(one.case).left_out
  return f'{words}; {left_out}' if left_out else words


def gpu(repeats: int) -> Iterator[Bar]:
  """Yield the time of a full run, and of a round against PyTorch, on a GPU."""
  whole = ratio = None
  how = against = 'no GPU here'
  if jax.default_backend() == 'gpu':
    each, last = (
      spread(measure(ON_GPU, work, repeats, False).seconds).median
      for work in ('training', 'evaluation')
    )
    whole = ROUNDS * each + last
    how = f'{ROUNDS} x {each:.3f} s + {last:.1f} s, compilation not counted'
    against = NO_TORCH
    if has_torch():
      tenth = ON_GPU._replace(clients=ON_GPU.clients // 10)
      found = measure(tenth, 'training', repeats, True).against_torch()
      ratio = found.median
      against = (
        f'{found.low:.2f} to {found.high:.2f}; torch_loop.py in place of '
        "the authors' code; it loads no data"
      )
  name = f'{ROUNDS} rounds and evaluation, f=1.0'
  yield Bar(name, whole, 180, 's', 'at most', how)
  name = 'a round of MobileNet, f=0.1'
  yield Bar(name, ratio, 10, 'x PyTorch', 'at least', against)


def startup(repeats: int) -> Iterator[Bar]:
  """Yield the first and the second start of every config.

  Seconds from the command to the first round's line of metrics, in a new run
  directory: with an empty cache folder, and with the cache of the first.
  Synthetic images replace CIFAR, so that no data are loaded.
  """
  del repeats  # the first start cannot be repeated
  for config in STARTED:
    with tempfile.TemporaryDirectory() as folder:
      for name, limit in STARTS.items():
        seconds, busy = start(config, Path(folder), name)
        how = f'{busy:.1f} s of processor time until the first round was logged'
        title = f'{name} start, {config.replace(".py", "")}'
        yield Bar(title, seconds, limit, 's', 'at most', how)


def start(config: str, folder: Path, name: str) -> tuple[float, float]:
  """Return the seconds until the first round is logged; then stop the run.

  The second number is the processor time, which other programs do not change.
  """
  environ = {k: v for k, v in os.environ.items() if k not in UNSET}
  environ['XDG_CACHE_HOME'] = str(folder / 'cache')
  command = [
    sys.executable,
    f'{commandline.ROOT}/experiments/main.py',
    f'--config={commandline.ROOT}/configs/{config}',
    f'--workdir={folder / name}',
    f'--config.data_dir={folder / "images"}',  # does not exist
    '--config.log_every=1',
  ]
  metrics, log = folder / name / 'metrics.jsonl', folder / f'{name}.log'
  before, began = _processor_seconds(), time.perf_counter()
  with log.open('wb') as file:
    run = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
  try:
    while not (metrics.exists() and b'\n' in metrics.read_bytes()):
      if run.poll() is not None:
        raise RuntimeError(log.read_text()[-500:])
      time.sleep(PERIOD)
    seconds = time.perf_counter() - began
  finally:
    run.kill()
    run.wait()
  return seconds, _processor_seconds() - before


def _processor_seconds() -> float:
  """Return the processor time of all child processes that have ended."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


BARS: dict[str, Callable[[int], Iterator[Bar]]] = {
  **{model: partial(training, model) for model in MODELS},
  'evaluation': evaluation,
  'startup': startup,
  'scale': limits.scale,
  'forecast': limits.forecast,
  'ragged': limits.ragged,
  'seeds': limits.seeds,
  'gpu': gpu,
}
