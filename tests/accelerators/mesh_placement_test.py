"""Programs are compiled for arrays that lie where those of a run lie."""

import json

import pytest
import simulated_devices


@pytest.mark.long
def test_states_are_divided_as_in_a_run():
  (line,) = simulated_devices.output_of('accelerators/on_a_mesh.py', 3)
  found = json.loads(line)
  assert found['names'] == ['server', 'clients', 'cohort', 'data', 'key']
  assert found['program'] == found['run']
  _, clients = found['run']
  assert clients and all(own == [12, 4] for own in clients)  # 10 clients, 3
  assert all(total == own for total, own in found['data'])
  assert {*found['share']} == {*found['results']} == {4}
