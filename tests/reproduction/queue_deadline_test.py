"""The time of a queue is up: what runs ends as by a signal."""

import contextlib
import signal
import time

import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.queue import deadline


def test_a_timer_ends_what_is_no_training():
  with (
    pytest.raises(KeyboardInterrupt),
    handled(),
    deadline.deadline(0.05 / 60) as is_up_fn,
  ):
    assert not is_up_fn()
    time.sleep(10)
  assert is_up_fn()
  with deadline.deadline(None) as is_up_fn:
    pass
  assert not is_up_fn()


@contextlib.contextmanager
def handled():
  """Turn SIGTERM into KeyboardInterrupt, as commands do."""

  def stop(number, frame):
    raise KeyboardInterrupt

  before = signal.signal(signal.SIGTERM, stop)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize('minutes', [0, -1, float('nan'), float('inf')])
def test_no_time_is_refused(minutes):
  with pytest.raises(BadInput, match='a number of minutes above 0'):
    deadline.check_minutes(minutes)
