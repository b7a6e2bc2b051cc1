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

from experiments import commandline
from experiments.benchmarks.screen import Bar

CONFIGS = ('digits.py:fedbabu', 'fedbabu_cifar100.py:quick')
LIMITS = {'first': 20, 'second': 6}  # seconds
# Not of a user: main.py has its own.
OWN = ('FEDJAX_PFL_CACHE', 'JAX_COMPILATION_CACHE_DIR', 'GLIBC_TUNABLES')
PERIOD = 0.02  # seconds between two checks


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the first and the second start of every config."""
  del repeats  # the first start cannot be repeated
  for config in CONFIGS:
    with tempfile.TemporaryDirectory() as folder:
      for name, limit in LIMITS.items():
        seconds, busy = start(config, Path(folder), name)
        how = f'{busy:.1f} s of processor time until the first round was logged'
        title = f'{name} start, {config.replace(".py", "")}'
        yield Bar(title, seconds, limit, 's', 'at most', how)


def start(config: str, folder: Path, name: str) -> tuple[float, float]:
  """Return the seconds until the first round is logged; then stop the run.

  The second number is the processor time, which other programs do not change.
  """
  environ = {k: v for k, v in os.environ.items() if k not in OWN}
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
