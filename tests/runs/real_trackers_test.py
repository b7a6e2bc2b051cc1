"""The real wandb and mlflow, without a network, where they are installed."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from pages import ROOT, code_of

from fedjax_pfl.runs import run_dir

# A run that is killed after round 3 and continued after round 1, to round 4.
PROGRAM = """
import json, sys
import numpy as np
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.runs import run_dir

path, name = sys.argv[1:]
name = load_code({'tracker': name})['tracker']
def begin():
  config = {'seed': 1, 'hp': {'lr': 0.1}, **dict.fromkeys(map(str, range(150)))}
  run = run_dir.open_run(path, config, data='d', tracker=name)
  return run, run.resume({'w': np.zeros(2)})

def play(first, last):
  for done in range(first, last + 1):
    run.log(round=done, loss=1 / done, **{'mix_0.5/accuracy': 10 * done})
    if done == 1:
      run.save_checkpoint(done, {'w': np.zeros(2)})

run, _ = begin()
play(1, 3)
if name == 'wandb':  # as if killed: nothing more is sent
  import wandb
  wandb.teardown(exit_code=1)
run, restored = begin()
assert restored[0] == 1
play(2, 4)
run.write_result(algorithm='a', dataset='d', rounds=4, seconds=1.0, views={
  'initial': {'mean': 50.0}})
run.close()
heavy = {'tensorflow', 'torch', 'keras', 'tensorboard'} & {*sys.modules}
print(json.dumps(sorted(heavy)))
"""


def play(tmp_path, package, name, **variables):
  """Run the program in a folder of its own; return its run directory."""
  if importlib.util.find_spec(package) is None:
    pytest.skip(f'{package} is not installed: pip install {package}')
  proxies = dict.fromkeys(('http_proxy', 'https_proxy'), 'http://127.0.0.1:9')
  path = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(tmp_path / 'run'), name],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': path, **proxies, **variables},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr
  *lines, heavy = done.stdout.splitlines()
  assert 'nothing more' not in done.stdout, done.stdout
  assert json.loads(heavy) == []
  assert [line.startswith(f'{name}: ') for line in lines] == [True, True]
  assert run_dir.load_result(tmp_path / 'run')['status'] == 'finished'
  return tmp_path / 'run'


def test_wandb_offline(tmp_path):
  variables = {'WANDB_MODE': 'offline', 'HOME': str(tmp_path)}
  run = play(tmp_path, 'wandb', 'wandb', **variables)
  (id_,) = json.loads((run / 'tracker.json').read_text()).values()
  parts = sorted(run.glob(f'wandb/offline-run-*-{id_}/run-{id_}.wandb'))
  assert len(parts) == 2  # `wandb sync` makes one run of both


def test_mlflow_in_files(tmp_path):
  uri = (tmp_path / 'store').as_uri()
  variables = {
    'MLFLOW_TRACKING_URI': uri,
    'MLFLOW_ALLOW_FILE_STORE': 'true',
    'MLFLOW_DISABLE_TELEMETRY': 'true',
  }
  (code,) = code_of('docs/howto/trackers.md')
  (tmp_path / 'mlflow_runs.py').write_text(code)
  run = play(tmp_path, 'mlflow', 'mlflow_runs.py:MLflow', **variables)
  (id_,) = json.loads((run / 'tracker.json').read_text()).values()
  (folder,) = (tmp_path / 'store').glob(f'*/{id_}')
  losses = (folder / 'metrics' / 'loss').read_text().splitlines()
  assert [line.split()[2] for line in losses] == ['1', '2', '3', '4']
  assert (folder / 'params' / 'hp.lr').read_text() == '0.1'
  assert len([*(folder / 'params').iterdir()]) == 152
  mean = folder / 'metrics' / 'views' / 'initial' / 'mean'
  assert mean.read_text().split()[1] == '50.0'
