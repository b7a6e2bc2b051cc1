"""What a round moves between 16 devices, and what each of them holds.

Counted in the compiled program, and by hand for the model of helpers.py: 43
numbers, of which 18 in the head.
"""

import json

import pytest
import simulated_devices
from helpers import CLASSES

DEVICES, PLACES = 16, 16  # 9 clients of a cohort, one place on each device
MODEL, HEAD, METRICS = 4 * 43, 4 * 18, 4 * 4
WEIGHTS = 4  # their sum


@pytest.fixture(scope='module')
def found():
  """Return what tests/support/on_a_pod.py prints."""
  words = ['fedavg,9,41', 'fedper,9,41', 'fedper,9,4001', 'fedper,41,41', 'pod']
  (found,) = simulated_devices.output_of('support/on_a_pod.py', DEVICES, *words)
  return json.loads(found)


def test_a_round_moves_one_reduction_of_the_model(found):
  assert found['fedavg,9,41']['collectives'] == [
    ['all-gather', PLACES * METRICS],
    ['all-reduce', WEIGHTS],
    ['all-reduce', MODEL],
  ]


def test_a_round_moves_the_states_of_its_cohort_alone(found):
  """However many clients are registered."""
  for word in ('fedper,9,41', 'fedper,9,4001'):
    assert found[word]['collectives'] == [
      ['all-gather', PLACES * (HEAD + METRICS)],
      ['all-reduce', WEIGHTS],
      ['all-reduce', MODEL - HEAD],
      ['reduce-scatter', PLACES * HEAD],
    ]


def test_where_all_clients_take_part_no_state_moves(found):
  assert found['fedper,41,41']['collectives'] == [
    ['all-gather', 48 * METRICS],  # three places on each device
    ['all-reduce', WEIGHTS],
    ['all-reduce', MODEL - HEAD],
  ]


def test_each_device_has_its_share_of_100_000_clients(found):
  """A head of 24 kB each, 2.4 GB in all: 150 MB on each of 16 devices."""
  pod = found['pod']
  head, share = 4 * (2000 + 1) * CLASSES, pod['states'] // DEVICES
  assert pod['states'] == 100_000 * head
  inputs = pod['arguments'] - share - pod['data'] - pod['server']
  assert 0 <= inputs < 10_000  # the cohort, the key
  assert 0 <= pod['results'] - share - pod['server'] < 10_000
  moved = 112 * head  # 100 clients on 16 devices, 7 each
  assert pod['temporary'] < 2.5 * moved
  kinds = [kind for kind, _ in pod['collectives']]
  assert kinds == ['all-gather', 'all-reduce', 'reduce-scatter']
  assert sum(size for _, size in pod['collectives']) < 2.1 * moved


def test_the_forecast_is_what_is_compiled(found):
  pod = found['pod']
  assert pod['forecast']['clients'] == pod['states'] / DEVICES
  used = pod['arguments'] + pod['results'] + pod['temporary']
  assert pod['round'] == pytest.approx(used, rel=0.05)
