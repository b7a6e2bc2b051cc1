"""make evidence, claims and leaderboard: what they print, and refuse."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from user_commands import ROOT, refusal, run

on_linux = pytest.mark.skipif(sys.platform != 'linux', reason='of Linux')


def test_without_images_it_says_how_to_get_them(tmp_path):
  """A dry run shows the queue all the same; neither makes a file."""
  place = {'TFDS_DATA_DIR': str(tmp_path / 'none')}
  results, queue = tmp_path / 'results', tmp_path / 'queue.toml'
  text = (ROOT / 'results' / 'queue.toml').read_text()
  head, first, *_ = text.split('[[cells]]')
  claims = re.sub(r'(?m)^[b-z] = .*\n', '', head)
  queue.write_text(f'{claims}[[cells]]{first}')
  flags = f'--results={results}', f'--queue={queue}'
  shown = run('evidence', '--dry-run', *flags, **place)
  assert shown.returncode == 0, shown.stderr
  assert re.search(r'0 of (\d+) done, \1 blocked', shown.stdout)
  assert re.search(r'a +fedbabu/13 +algorithm=ditto,shards', shown.stdout)
  assert not results.exists()
  refused = run('evidence', '--minutes=1', *flags, **place)
  assert 'experiments/prepare.py cifar10' in refusal(refused)
  assert 'is left out: ' in refused.stdout and not [*results.iterdir()]


def made(*words):
  """Return the words of the command that make would run."""
  if shutil.which('make') is None:
    pytest.skip('no make')
  # Below another make, as `make test` is, it would tell its directory, too.
  command = ['make', '-n', '--no-print-directory', 'VENV=/v']
  done = subprocess.run(
    [*command, '-o', '/v/installed', *words],
    cwd=ROOT, capture_output=True, text=True, check=True,
  )  # fmt: skip
  return done.stdout.replace('\\\n', ' ').split()[1:]


def test_make_hands_over_minutes_and_cores():
  file = 'experiments/evidence.py'
  flags = ['--minutes=150', '--cores=1']
  assert made('evidence', 'MINUTES=150', 'CORES=1') == [file, *flags]
  assert made('evidence') == [file]
  assert made('leaderboard') == ['experiments/leaderboard.py']  # the digits


SEEN = """
import os, sys
import commandline, evidence, priority
assert 'jax' not in sys.modules
from fedjax_pfl.reproduction import queue
import jax

queue.show_queue = lambda *given: print(
  jax.devices(), os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE
)
commandline.run(evidence.main)
"""


@on_linux
def test_its_cpu_is_one_device_a_core_that_gives_way():
  if len(os.sched_getaffinity(0)) < 2:
    pytest.skip('needs two cores')
  more = {'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu'}
  more['PYTHONPATH'] = f'{ROOT}/experiments:{ROOT}'
  done = subprocess.run(
    [sys.executable, '-c', SEEN, '--dry-run', '--cores=2'],
    cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert done.stdout == '[CpuDevice(id=0), CpuDevice(id=1)] 19 True\n'


# ---- claims and leaderboard


def test_without_results_every_claim_is_not_run(tmp_path):
  shown = run('claims', f'--results={tmp_path}')
  assert shown.returncode == 0, shown.stderr
  lines = shown.stdout.splitlines()
  assert sum(line.endswith(': not run') for line in lines) == 8
  assert ' '.join(lines[2].split()) == '(a) FedBABU > FedAvg +6.70 not run'
  assert not [*tmp_path.iterdir()]
