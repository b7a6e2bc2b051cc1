"""Faults, a few of each campaign: `make faults` tries them all."""

import pytest
from faults import campaigns

pytestmark = pytest.mark.usefixtures('quick_compiler')
FEW = {'kills': 12, 'damages': 4, 'disks': 3, 'mutations': 40}


@pytest.mark.parametrize(('name', 'count'), FEW.items())
def test_every_fault_ends_well(tmp_path, name, count):
  ends = [*getattr(campaigns, name)(tmp_path, seed=1, count=count)]
  assert ends == [''] * count
