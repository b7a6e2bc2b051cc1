"""Every method lowers for a TPU and for CUDA, all programs of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ALGORITHMS

from experiments.accelerators.targets import DISTRIBUTIONS

LOWER = Path(__file__).with_name('lower.py')
ROOT = LOWER.parents[2]


@pytest.mark.parametrize(
  'platform',
  [
    pytest.param(name, marks=[pytest.mark.long] * (name != 'tpu'))
    for name in DISTRIBUTIONS
  ],
)
def test_a_method_with_two_stages(platform):
  found = lower(platform, ['lg_fedavg'])
  assert {*found} == {
    'digits:lg_fedavg fedavg round',
    'digits:lg_fedavg lg_fedavg begin',
    'digits:lg_fedavg lg_fedavg round',
    'digits:lg_fedavg lg_fedavg evaluation',
  }
  # On an accelerator convolutions are the compiler's own.
  assert found['digits:lg_fedavg fedavg round'] > 0


@pytest.mark.long
@pytest.mark.parametrize('platform', DISTRIBUTIONS)
def test_every_method(platform):
  found = lower(platform, ALGORITHMS)
  for method in ALGORITHMS:
    own = [name for name in found if name.startswith(f'digits:{method} ')]
    assert {name.split()[-1] for name in own} >= {'round', 'evaluation'}, own


def lower(platform, methods):
  """Return {program: its convolutions} of these methods."""
  names = [f'digits:{method}' for method in methods]
  run = subprocess.run(
    [sys.executable, str(LOWER), platform, *names],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr[-2000:]
  return json.loads(run.stdout)
