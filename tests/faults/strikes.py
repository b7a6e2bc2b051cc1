"""Signals at random moments of commands, each in a process of its own.

SIGKILL, from the start of training to the report page; SIGTERM and Ctrl-C
while it trains: then the command ends with the status that shells give the
signal, with a sentence and no traceback; if rounds were done, with a checkpoint
of the last of them. The same command is given until it comes to its end: all
numbers are then those of the unbroken run.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from compiler import QUICK

from faults import tiny
from fedjax_pfl.runs import checkpoint, run_dir

ROOT = Path(__file__).parents[2]
# Signal -> how many in twelve.
SHARES = {signal.SIGKILL: 10, signal.SIGTERM: 1, signal.SIGINT: 1}
# Python itself starts for a moment in which signals end it as they like.
STARTING = 1.0
TRAIN = f"""{sys.executable} experiments/main.py
  --config=configs/digits.py:fedavg --config.conv_impl=lax
  --config.num_clients=5 --config.max_train_examples=200
  --config.client_fraction=0.4 --config.rounds=6 --config.local_epochs=1
  --config.views=initial --config.eval_every=2 --config.checkpoint_every=1
  --config.eval_global_model=true --config.learning_rate=0.01
  --workdir=$0/run"""
REPORT = f'{sys.executable} experiments/report.py $0/run --out=$0/report.html'


def run(count: int, seed: int):
  """Send `count` signals, at moments uniform over the time of a whole run."""
  rng = np.random.default_rng(seed)
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for number, share in SHARES.items():
      has_report = number == signal.SIGKILL
      # Once to compile: all others find what this one has left.
      for other in ('first', 'second'):
        began, whole = time.perf_counter(), folder / f'{number}{other}'
        assert start(whole, has_report).wait() == 0, log_of(whole)
      seconds, want = (
        time.perf_counter() - began,
        tiny.numbers_of(whole / 'run'),
      )
      print(f'an unbroken run takes {seconds:.0f} s', flush=True)
      ends, runs = [], 0
      while len(ends) < count * share // 12:
        path = folder / f'{number}_{runs}'
        ends += strike(path, number, rng, seconds)
        if tiny.numbers_of(path / 'run') != want:
          ends.append(f'run {runs}: other numbers')
        runs += 1
        print(f'{number.name}: {len(ends)} so far', flush=True)
      yield number.name, ends


def start(folder: Path, has_report: bool) -> subprocess.Popen:
  """Train, then make the page; in a group of processes of their own.

  The compiled programs are shared, so that most of the time goes into
  importing and tracing.
  """
  train = ' '.join(TRAIN.split())
  shell = f'{train} && exec {REPORT}' if has_report else f'exec {train}'
  environ = {
    'XLA_FLAGS': QUICK,
    'JAX_COMPILATION_CACHE_DIR': str(folder.parent / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  folder.mkdir(exist_ok=True)
  with open(folder / 'log', 'ab') as log:
    return subprocess.Popen(
      ['sh', '-c', shell, str(folder)],
      cwd=ROOT,
      env={**os.environ, **environ},
      stdout=log,
      stderr=subprocess.STDOUT,
      start_new_session=True,
      # A command knows SIGINT, also where this one was started with `&`.
      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def log_of(folder: Path) -> str:
  return (folder / 'log').read_text()


def strike(
  folder: Path, number: int, rng: np.random.Generator, seconds: float
) -> list[str]:
  """Send a signal to each command, until one ends before it.

  Returns '' or what is wrong with the end of each command that was struck.
  """
  is_kill, ends, last, size = number == signal.SIGKILL, [], seconds, 0
  while True:
    process, struck = start(folder, is_kill), False
    try:
      process.wait(rng.uniform(0 if is_kill else STARTING, last))
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, number)
      struck = True
    status, output = process.wait(), log_of(folder)
    if status == 0:
      return ends
    if not struck:
      return [*ends, f'status {status}: {output[size:]}']
    ends.append('' if is_kill else wrong(folder, status, number, output[size:]))
    # Enough of a run is let through for it to end some day.
    last, size = min(last * 1.2, 4 * seconds), len(output)


def wrong(folder: Path, status: int, number: int, output: str) -> str:
  """Return what is wrong with how a signal ended the command, or ''."""
  if status not in (128 + number, -number):
    return f'status {status}: {output}'
  if 'Traceback' in output or 'Error:' in output:
    return output
  if 'Saved after round' in output:
    saved = checkpoint.steps(folder / 'run' / 'checkpoints')
    last = run_dir.load_metrics(folder / 'run')[-1]['round']
    if saved[-1] != last:
      return f'round {last} is logged, and {saved} are saved'
  return ''
