"""The roofline, by hand."""

import pytest

from experiments.accelerators import roofline
from experiments.accelerators.devices import BY_PLATFORM, DEVICES, Device
from experiments.accelerators.hlo_totals import Costs
from experiments.accelerators.targets import KINDS as KINDS_OF
from fedjax_pfl.core.target import KINDS
from fedjax_pfl.models.precision import PRECISIONS

# 100 bytes/s, 1,000 FLOP/s, 0.5 s a launch, 10 cycles a second.
SLOW = Device('slow', 10**6, 100, {'tf32': 1000}, launch=0.5, clock=10)


@pytest.mark.parametrize(
  ('costs', 'seconds', 'limit'),
  [
    (Costs(kernels=2, flops=3000, bytes=200), 3 + 1, 'products'),
    (Costs(kernels=2, flops=1000, bytes=700), 7 + 1, 'memory'),
    (Costs(kernels=9, flops=1000, bytes=200), 2 + 4.5, 'launches'),
  ],
)
def test_time_and_what_limits_it(costs, seconds, limit):
  assert roofline.seconds(costs, SLOW, 'tf32') == seconds
  assert roofline.limit(costs, SLOW, 'tf32') == limit


def test_the_compilers_cycles():
  costs = Costs(kernels=3, cycles=50, uncosted_bytes=200)
  assert roofline.compiler_seconds(costs, SLOW) == 5 + 2
  assert roofline.compiler_seconds(costs._replace(cycles=0), SLOW) is None
  without = SLOW._replace(clock=None)
  assert roofline.compiler_seconds(costs, without) is None


def test_costs_add_up():
  one = Costs(1, 10, 100, 1000, 10_000)
  assert Costs().plus(one, 3) == Costs(3, 30, 300, 3000, 30_000)


def test_every_device_belongs_to_a_platform():
  assert {n for names in BY_PLATFORM.values() for n in names} == {*DEVICES}
  for device in DEVICES.values():
    assert {*device.peaks} == {*PRECISIONS}
    exact, rounded, half = (device.peaks[name] for name in PRECISIONS)
    # More FLOPs than bytes a second, and a memory read in less than a minute.
    assert half > rounded > exact > device.bandwidth > device.memory / 60


def test_the_rule_of_auto_agrees_with_the_devices():
  for platform, names in BY_PLATFORM.items():
    launches = KINDS[KINDS_OF[platform]].launches
    assert all((DEVICES[name].launch > 0) == launches for name in names)
