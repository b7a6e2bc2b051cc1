"""Every method lowers for a TPU and for CUDA; on a mesh as in a run."""

import json

import pytest
import simulated_devices
from helpers import ALGORITHMS

PLATFORMS = ('tpu', 'cuda')


def lower(platform, methods):
  """Return {program: its convolutions} of these methods."""
  names = [f'digits:{method}' for method in methods]
  script = 'accelerators/lower.py'
  (line,) = simulated_devices.output_of(script, 1, platform, *names)
  return json.loads(line)


@pytest.mark.long
@pytest.mark.parametrize('platform', PLATFORMS)
def test_every_method(platform):
  found = lower(platform, ALGORITHMS)
  for method in ALGORITHMS:
    own = [name for name in found if name.startswith(f'digits:{method} ')]
    assert {name.split()[-1] for name in own} >= {'round', 'evaluation'}, own
  # On an accelerator convolutions are the compiler's own.
  assert found['digits:lg_fedavg fedavg round'] > 0


@pytest.mark.long
def test_states_are_divided_as_in_a_run():
  (line,) = simulated_devices.output_of('accelerators/on_a_mesh.py', 3)
  found = json.loads(line)
  assert found['program'] == found['run']
  _, clients = found['run']
  assert clients and all(own == [12, 4] for own in clients)  # 10 clients, 3
