"""Every method lowers for a TPU and for CUDA."""

import json

import pytest
import simulated_devices
from helpers import ALGORITHMS


@pytest.mark.long
@pytest.mark.parametrize('platform', ['tpu', 'cuda'])
def test_every_method(platform):
  names = [f'digits:{method}' for method in ALGORITHMS]
  script = 'accelerators/lower.py'
  (line,) = simulated_devices.output_of(script, 1, platform, *names)
  found = json.loads(line)
  for method in names:
    own = [name for name in found if name.startswith(f'{method} ')]
    assert {name.split()[-1] for name in own} == {'round', 'evaluation'}, own
  # On an accelerator convolutions are the compiler's own.
  assert found['digits:lg_fedavg fedavg round'] > 0
