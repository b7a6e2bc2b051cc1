"""A run on a mesh, whose states no device has all of, is that on one device."""

import json

import pytest
import simulated_devices


@pytest.mark.long
def test_a_run_on_devices_is_that_on_one(tmp_path):
  """Without a client that diverges, and continued on other devices."""
  script, folder = 'support/runs_on_devices.py', str(tmp_path)
  *log, found = simulated_devices.output_of(script, 4, folder)
  for name, differs in json.loads(found).items():
    assert differs['difference'] < 1e-12, name
    assert differs['excluded'] == [[[2, 3]], []], name
  assert any('Continuing after round 2 of 4' in line for line in log)
