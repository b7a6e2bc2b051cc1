"""make evidence: its flags, its priority, and what it refuses."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import priority
from fedjax_pfl.core.errors import BadInput

ROOT = Path(__file__).parents[2]


def run(*flags, **environ):
  return subprocess.run(
    [sys.executable, 'experiments/evidence.py', *flags],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT), **environ},
    capture_output=True,
    text=True,
  )


def test_without_images_it_says_how_to_get_them(tmp_path):
  """A dry run shows the queue all the same; neither makes a file."""
  place = {'TFDS_DATA_DIR': str(tmp_path / 'none')}
  results, queue = tmp_path / 'results', tmp_path / 'queue.toml'
  text = (ROOT / 'results' / 'queue.toml').read_text()
  head, first, *_ = text.split('[[cells]]')
  claims = re.sub(r'(?m)^[b-z] = .*\n', '', head)
  queue.write_text(f'{claims}[[cells]]{first}')
  flags = f'--results={results}', f'--queue={queue}'
  shown = run('--dry-run', *flags, **place)
  assert shown.returncode == 0, shown.stderr
  assert re.search(r'0 of (\d+) done, \1 blocked', shown.stdout)
  assert re.search(r'a +Ditto +s=5 f=0.1 tau=10 +fedbabu/13', shown.stdout)
  assert not results.exists()
  refused = run('--minutes=1', *flags, **place)
  assert refused.returncode == 1 and 'is left out: ' in refused.stdout
  assert 'experiments/prepare.py cifar10' in refused.stderr
  assert not [*results.iterdir()]


@pytest.mark.parametrize(
  ('flag', 'words'),
  [
    ('--minutes=soon', "could not convert string to float: 'soon'"),
    ('--minutes=0', 'minutes: got 0.0, expected a number of minutes above 0'),
    ('--cores=1000', 'cores: got 1000, expected as many cores as this process'),
    ('--queue=none.toml', 'none.toml: got'),
  ],
)
def test_a_wrong_flag_is_a_sentence(tmp_path, flag, words):
  refused = run(flag, f'--results={tmp_path / "results"}')
  assert refused.returncode == 1
  assert words in refused.stderr and 'Likely cause: ' in refused.stderr
  assert 'Traceback' not in refused.stderr
  assert not (tmp_path / 'results').exists()


def test_make_hands_over_minutes_and_cores():
  if shutil.which('make') is None:
    pytest.skip('no make')
  # Below another make, as `make test` is, it would tell its directory, too.
  command = ['make', '-n', '--no-print-directory', 'VENV=/v']
  command += ['-o', '/v/installed', 'evidence']
  done = subprocess.run(
    [*command, 'MINUTES=150', 'CORES=1'],
    cwd=ROOT, capture_output=True, text=True, check=True,
  )  # fmt: skip
  words = done.stdout.replace('\\\n', ' ').split()
  assert words[1:] == ['experiments/evidence.py', '--minutes=150', '--cores=1']
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert '--' not in done.stdout


LOWER = """
import os, sys
from experiments import priority
assert not {'numpy', 'jax'} & {*sys.modules}
priority.lower(1)
import jax
print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE,
      len(os.sched_getaffinity(0)))
"""


@pytest.mark.skipif(sys.platform != 'linux', reason='idle scheduling is Linux')
def test_it_gives_way_before_jax_starts():
  done = subprocess.run(
    [sys.executable, '-c', LOWER], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.split() == ['19', 'True', '1'], done.stderr


SEEN = """
from experiments import commandline, evidence
from fedjax_pfl.reproduction.queue import work
import jax

work.show_queue = lambda *given: print(jax.devices())
commandline.run(evidence.main)
"""


@pytest.mark.skipif(
  sys.platform != 'linux' or len(os.sched_getaffinity(0)) < 2,
  reason='needs two cores',
)
def test_its_cpu_is_one_device_a_core():
  done = subprocess.run(
    [sys.executable, '-c', SEEN, '--dry-run', '--cores=2'],
    cwd=ROOT,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
    capture_output=True,
    text=True,
  )
  devices, then = done.stdout.splitlines()
  assert devices == '[CpuDevice(id=0), CpuDevice(id=1)]', done.stderr
  assert then.startswith('Then: Leaderboard cifar10: 260 trainings')


@pytest.mark.parametrize('cores', [0, -1])
def test_no_core_is_refused(cores):
  before = os.nice(0)
  with pytest.raises(BadInput, match='cores: got'):
    priority.lower(cores)
  assert os.nice(0) == before
