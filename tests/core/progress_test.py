"""Plain lines for a log file, one bar for a terminal."""

import io
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from fedjax_pfl.core import progress


class Terminal(io.StringIO):
  def isatty(self):
    return True


class Played:
  """A screen whose clock is moved by hand."""

  def __init__(self):
    self.now, self.stream = 100.0, io.StringIO()
    self.screen = progress.Screen(self.stream, {}, lambda: self.now)

  def update(self, bar, done, seconds, **numbers):
    self.now += seconds
    bar.update(done, **numbers)

  @property
  def lines(self):
    return self.stream.getvalue().splitlines()


def play(seconds, rounds=8, start=0, **options):
  """Return the lines of rounds that take so many seconds, each or in turn."""
  played = Played()
  with played.screen.progress('a', rounds, start=start, **options) as bar:
    for done in range(start + 1, rounds + 1):
      took = seconds[done > 1] if isinstance(seconds, tuple) else seconds
      played.update(bar, done, took, loss=1.2345, images_per_second=812.3)
  return played.lines


def test_slow_rounds_have_a_line_each_and_fast_ones_one_a_second():
  lines = play(2.0)
  assert len(lines) == 8
  assert lines[0] == 'round 1/8  loss 1.234  812 images/s  14 s left'
  assert lines[-1] == 'round 8/8  loss 1.234  812 images/s'
  assert [line.split()[1] for line in play(0.3)] == ['1/8', '5/8', '8/8']


def test_time_left_of_a_resumed_run_and_after_a_slow_first_round():
  assert play(2.0, rounds=10, start=6)[0].endswith('6 s left')
  assert play((60, 1), rounds=100)[19].endswith('1 min 20 s left')


def test_inner_and_short_work_has_lines_only_when_it_takes_long():
  played = Played()
  with played.screen.progress('training', 2) as outer:
    for done, seconds in ((1, 1), (2, 9)):
      with played.screen.progress('evaluation', 2, unit='client') as inner:
        for client in (1, 2):
          played.update(inner, client, seconds)
      outer.update(done)
  assert played.lines == [
    'round 1/2  2 s left',
    'client 1/2  9 s left',
    'client 2/2',
    'round 2/2',
  ]
  for seconds, number in ((1, 0), (9, 2)):
    assert len(play(seconds, rounds=2, is_short=True)) == number


@pytest.mark.parametrize(
  ('environ', 'expected'),
  [
    ({}, True),
    ({'TERM': 'xterm'}, True),
    ({'TERM': 'dumb'}, False),
    ({'CI': 'true'}, False),
    ({'CI': 'false'}, True),
  ],
)
def test_what_counts_as_a_terminal(environ, expected):
  assert progress.Screen(Terminal(), environ).is_terminal() == expected
  assert not progress.Screen(io.StringIO(), environ).is_terminal()


def test_format_of_seconds_and_numbers():
  got = [progress.format_seconds(s) for s in (0.4, 59.4, 185, 7625)]
  assert got == ['0 s', '59 s', '3 min 05 s', '2 h 07 min']
  numbers = {'accuracy': 45.26, 'up_mb': 1.23456, 'images_per_second': 8123.4}
  assert progress.format_numbers({'loss': float('nan')}) == ['loss -']
  assert progress.format_numbers(numbers) == [
    'accuracy 45.3 %',
    'up mb 1.235',
    '8,123 images/s',
  ]


def test_module_functions_write_to_the_stdout_of_the_moment(capsys):
  progress.log('50 [bold] ± 3')
  progress.warn('careful')
  assert capsys.readouterr().out == '50 [bold] ± 3\nWarning: careful\n'


def test_a_log_file_without_unicode():
  raw = io.BytesIO()
  stream = io.TextIOWrapper(raw, encoding='ascii')
  progress.Screen(stream, {}).log('50 ± 3 –')
  assert raw.getvalue() == b'50 +- 3 ?\n'


def on_a_terminal(code):
  """Return what a program draws on a real pseudo-terminal."""
  leader, follower = pty.openpty()
  environ = {k: v for k, v in os.environ.items() if k not in ('CI', 'NO_COLOR')}
  environ |= {'TERM': 'xterm-256color', 'COLUMNS': '100'}
  process = subprocess.Popen(
    [sys.executable, '-c', code], stdout=follower, env=environ
  )
  os.close(follower)
  drawn = b''
  while select.select([leader], [], [], 30)[0]:
    try:
      chunk = os.read(leader, 65536)
    except OSError:  # the end of a pseudo-terminal on Linux
      break
    if not chunk:
      break
    drawn += chunk
  os.close(leader)
  assert process.wait() == 0
  return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', drawn.decode())


def test_nested_bars_and_lines_on_a_terminal():
  drawn = on_a_terminal(
    'from fedjax_pfl.core import progress\n'
    "with progress.progress('training', 4) as bar:\n"
    '  for done in range(1, 5):\n'
    '    bar.update(done, loss=1.5, images_per_second=812.)\n'
    "    with progress.progress('evaluation', 20, unit='client') as inner:\n"
    '      inner.update(20)\n'
    "  progress.log('checkpoint [8] ± is damaged')\n"
    "  progress.warn('careful')\n"
  )
  assert 'checkpoint [8] ± is damaged' in drawn
  assert 'Warning: careful' in drawn
  last = drawn.splitlines()[-1]
  assert re.search(r'training ━+ 4/4 loss 1.500  812 images/s', last)
  assert 'evaluation' not in last


def test_the_cursor_is_shown_again_after_an_error():
  screen = progress.Screen(Terminal(), {'TERM': 'xterm'})
  for _ in range(2):
    with pytest.raises(KeyError), screen.progress('training', 4):
      raise KeyError
  assert screen.stream.getvalue().endswith('\x1b[?25h')  # cursor is shown
