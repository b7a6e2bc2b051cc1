"""Start-up: seconds from the command to the first round's line of metrics.

Two starts of main.py, each in a new run directory: with an empty cache folder,
and with the cache of the first. Synthetic images of its size replace CIFAR, so
that no data are loaded.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from experiments import huge_pages
from experiments.benchmarks.bar import Bar
from fedjax_pfl.core.errors import bad_input

ROOT = Path(__file__).parents[2]
CONFIGS = ('digits:fedbabu', 'fedbabu_cifar100:quick')
FIRST, SECOND = 20, 6  # seconds
# Not of a user: main.py has its own.
OWN = ('FEDJAX_PFL_CACHE', 'JAX_COMPILATION_CACHE_DIR', huge_pages.VARIABLE)
PERIOD = 0.02  # seconds between two checks


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the first and the second start of every config."""
  del repeats  # the first start cannot be repeated
  for config in CONFIGS:
    with tempfile.TemporaryDirectory() as folder:
      for name, limit in (('first', FIRST), ('second', SECOND)):
        seconds, busy = start(config, Path(folder), name)
        yield Bar(
          f'{name} start, {config}',
          seconds,
          limit,
          's',
          'at most',
          f'{busy:.1f} s of processor time until the first round was logged',
        )


def start(config: str, folder: Path, name: str) -> tuple[float, float]:
  """Return the seconds until the first round is logged; then stop the run.

  The second number is the processor time, which other programs do not change.
  """
  file, _, argument = config.partition(':')
  environ = {**os.environ, 'XDG_CACHE_HOME': str(folder / 'cache')}
  for variable in OWN:
    environ.pop(variable, None)
  command = [
    sys.executable,
    str(ROOT / 'experiments' / 'main.py'),
    f'--config={ROOT}/configs/{file}.py' + f':{argument}' * bool(argument),
    f'--workdir={folder / name}',
    f'--config.data_dir={folder / "images"}',  # does not exist
    '--config.log_every=1',
  ]
  before = _processor_seconds()
  with open(folder / f'{name}.log', 'wb') as log:
    began = time.perf_counter()
    run = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
      seconds = _wait(run, folder / name / 'metrics.jsonl', began)
    finally:
      run.kill()
      run.wait()
  return seconds, _processor_seconds() - before


def _processor_seconds() -> float:
  """Return the processor time of all child processes that have ended."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


def _wait(run: subprocess.Popen, metrics: Path, began: float) -> float:
  while not (metrics.exists() and b'\n' in metrics.read_bytes()):
    if run.poll() is not None:
      raise bad_input(
        'startup',
        got=f'a run that ended with status {run.returncode}',
        expected='a first round',
        cause='; '.join(
          metrics.parent.with_suffix('.log').read_text().splitlines()[-3:]
        ),
      )
    time.sleep(PERIOD)
  return time.perf_counter() - began
