"""evidence.py: what it prints, and refuses."""

import os
import re
import subprocess
import sys

import priority
import pytest
from helpers import refused
from user_commands import ROOT, load_command

from experiments import commandline
from fedjax_pfl.training import compile_cache

on_linux = pytest.mark.skipif(sys.platform != 'linux', reason='of Linux')


def test_without_images_it_says_how_to_get_them(tmp_path, monkeypatch, capsys):
  """A dry run shows the queue all the same; neither makes a file."""
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'none'))
  # This process keeps its priority, and its programs.
  monkeypatch.setattr(priority, 'lower', lambda cores: None)
  monkeypatch.setattr(compile_cache, 'cache_programs', lambda log: None)
  results, queue = tmp_path / 'results', tmp_path / 'queue.toml'
  text = (ROOT / 'results' / 'queue.toml').read_text()
  head, first, *_ = text.split('[[cells]]')
  claims = re.sub(r'(?m)^[b-z] = .*\n', '', head)
  queue.write_text(f'{claims}[[cells]]{first}')
  main, file = load_command(monkeypatch, 'evidence.py')
  words = file, f'--results={results}', f'--queue={queue}'
  commandline.parse_words([*words, '--dry-run'])
  main()
  shown = capsys.readouterr().out
  assert re.search(r'0 of (\d+) done, \1 blocked', shown)
  assert re.search(r'a +fedbabu/13 +algorithm=ditto,shards', shown)
  assert not results.exists()
  commandline.parse_words([*words, '--nodry-run', '--minutes=1'])
  assert 'experiments/prepare.py cifar10' in refused(main)
  assert 'is left out: ' in capsys.readouterr().out
  assert not [*results.iterdir()]


SEEN = """
import os, sys
import commandline, evidence, priority
assert 'jax' not in sys.modules
from fedjax_pfl.reproduction import queue
import jax

queue.load_queue = lambda *given: None
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
