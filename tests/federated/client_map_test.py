"""What a round moves between 16 devices, and what each of them holds.

Counted in the compiled program, and by hand for the model of helpers.py: 43
numbers, of which 18 in the head.
"""

import pytest
import simulated_devices
from helpers import CLASSES

POD = 'fedper,100,100000,2000'
DEVICES, PLACES = 16, 16  # 9 clients of a cohort, one place on each device
MODEL, HEAD, METRICS = 4 * 43, 4 * 18, 4 * 4
WEIGHTS = 4  # their sum


@pytest.fixture(scope='module')
def found():
  """Return what tests/support/on_a_pod.py finds."""
  words = 'fedper,9,4001,5', 'fedper,41,41,5', POD
  return simulated_devices.call(DEVICES, 'on_a_pod.found', *words)


@pytest.mark.parametrize(
  ('word', 'moved'),
  [
    # All-gather, all-reduce and reduce-scatter: the metrics and the states of
    # the cohort alone, however many clients are registered; what is shared.
    (
      'fedper,9,4001,5',
      [PLACES * METRICS, PLACES * HEAD, MODEL - HEAD, HEAD],
    ),
    # Where all take part, no state; three places on each device.
    ('fedper,41,41,5', [48 * METRICS, MODEL - HEAD]),
  ],
)
def test_what_a_round_moves(found, word, moved):
  assert found[word]['moved'] == sorted([*moved, WEIGHTS])


def test_each_device_has_its_share_of_100_000_clients(found):
  """A head of 24 kB each, 2.4 GB in all: 150 MB on each of 16 devices."""
  pod = found[POD]
  head, share = 4 * (2000 + 1) * CLASSES, pod['states'] // DEVICES
  assert pod['states'] == 100_000 * head
  inputs = pod['arguments'] - share - pod['data'] - pod['server']
  assert 0 <= inputs < 10_000  # the cohort, the key
  assert 0 <= pod['results'] - share - pod['server'] < 10_000
  moved = 112 * head  # 100 clients on 16 devices, 7 each
  assert pod['temporary'] < 2.5 * moved
  assert moved < sum(pod['moved']) < 1.1 * moved
