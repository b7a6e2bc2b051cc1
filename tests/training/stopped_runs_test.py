"""Runs that a signal stops, and runs whose files were changed meanwhile."""

import os
import signal
import sys
from unittest import mock

import pytest
from faults import campaigns, tiny

from experiments import commandline
from fedjax_pfl.runs import lock, run_dir
from fedjax_pfl.runs.checkpoint import steps
from fedjax_pfl.settings import replace
from fedjax_pfl.training import many_runs, multihost, signals

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(autouse=True)
def interrupts_reach_python():
  """A shell lets background jobs ignore them."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.fixture(scope='module')
def whole(tmp_path_factory, quick_compiler):
  """Return all states that the files of the tiny run are in, and its end."""
  return campaigns.states(tmp_path_factory.mktemp('tiny') / 'run')


def test_metrics_that_were_changed_are_not_gone_on_with(whole, tmp_path):
  states, want = whole
  state = next(one for one in states if 'checkpoints/2' in one)
  state = campaigns.without_lock(state)
  changed = state[run_dir.METRICS].replace(b'"loss": 2', b'"loss": 3', 1)
  state = {**state, run_dir.METRICS: changed}
  assert campaigns.of_damaged(state, tmp_path / 'run', want) == ''
  assert tiny.last_sentence[-1].startswith('metrics: got ')
  (tmp_path / 'run' / run_dir.METRICS).unlink()  # as the message suggests
  assert 'is missing: continuing' in tiny.play(tmp_path / 'run')


def signalled(number, after):
  """Return what sends this process a signal after so many saved lines."""
  lines = []

  def log(self, log=run_dir.Run.log, **numbers):
    log(self, **numbers)
    lines.append(numbers)
    if len(lines) == after:
      os.kill(os.getpid(), number)

  return mock.patch.object(run_dir.Run, 'log', log)


def test_a_signal_saves_the_run_and_logs_it(
  whole, tmp_path, capsys, monkeypatch
):
  """Of two seeds the second does not begin."""
  seeds = [
    one.with_settings(replace(one.settings, checkpoint_every=3))
    for one in map(tiny.experiment, (0, 1))
  ]
  folders = [tmp_path / '0', tmp_path / '1']
  saved = []  # when processes wait for one another

  def any_of(sent, any_of=multihost.any_of):
    saved.append(steps(folders[0] / 'checkpoints'))
    return any_of(sent)

  monkeypatch.setattr(multihost, 'any_of', any_of)
  before = [signal.getsignal(each) for each in signals.SIGNALS]
  stopped = pytest.raises(signals.Stopped)
  with signalled(signal.SIGTERM, after=3), stopped as caught:
    many_runs.train_many(seeds, folders)
  assert caught.value.status == 128 + signal.SIGTERM and caught.value.logged
  assert 'Saved after round 2; the same' in capsys.readouterr().out
  assert steps(folders[0] / 'checkpoints') == [2] and not folders[1].exists()
  assert saved == [[], [], [2]]  # no process ends before the checkpoint
  assert not (folders[0] / lock.NAME).exists()
  assert [signal.getsignal(each) for each in signals.SIGNALS] == before
  many_runs.train_many(seeds, folders)
  assert tiny.numbers_of(folders[0]) == whole[1]


def test_a_second_interrupt_stops_at_once():
  stopped = pytest.raises(signals.Stopped)
  with stopped, signals.catch_signals() as signal_fn:
    os.kill(os.getpid(), signal.SIGINT)
    assert signal_fn() == signal.SIGINT
    os.kill(os.getpid(), signal.SIGINT)
    pytest.fail('not stopped')


KEPT = 'Stopped. What was saved is kept; '


@pytest.mark.parametrize(
  ('stop', 'status', 'output'),
  [
    (KeyboardInterrupt(), 130, KEPT),
    (signals.Stopped(15), 143, KEPT),
    (signals.Stopped(15, logged=True), 143, ''),
    (None, 143, 'Stopped.'),  # SIGTERM outside of training
  ],
)
def test_a_command_ends_with_the_status_of_its_signal(
  capsys, monkeypatch, stop, status, output
):
  monkeypatch.setattr(commandline.os, '_exit', sys.exit)

  def main(argument):
    if stop is None:
      os.kill(os.getpid(), signal.SIGTERM)
      pytest.fail('not stopped')
    raise stop

  before = signal.signal(signal.SIGTERM, commandline._terminate)
  try:
    with pytest.raises(SystemExit) as caught:
      commandline._without_traceback(main, ())
  finally:
    signal.signal(signal.SIGTERM, before)
  assert caught.value.code == status
  assert capsys.readouterr().out.startswith(output)
