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


def play(seconds, rounds=8, start=0, **options):
  """Return the lines of rounds that take so many seconds each."""
  now, stream = [100.0], io.StringIO()
  screen = progress.Screen(stream, {}, lambda: now[0])
  with screen.progress('a', rounds, start=start, **options) as bar:
    for done in range(start + 1, rounds + 1):
      now[0] += seconds
      bar.update(done, loss=1.2345, images_per_second=812.3)
  return stream.getvalue().splitlines()


def test_slow_rounds_have_a_line_each_and_fast_ones_one_a_second():
  lines = play(2.0)
  assert len(lines) == 8
  assert lines[0] == 'round 1/8  loss 1.234  812 images/s  14 s left'
  assert lines[-1] == 'round 8/8  loss 1.234  812 images/s'
  assert [line.split()[1] for line in play(0.3)] == ['1/8', '5/8', '8/8']
  assert play(2.0, rounds=10, start=6)[0].endswith('6 s left')  # resumed
  first, second, *_ = play(2.0, waits=True)
  assert not first.endswith('left') and second.endswith('12 s left')
  for seconds, number in ((1, 0), (9, 2)):
    assert len(play(seconds, rounds=2, is_short=True)) == number


@pytest.mark.parametrize(
  ('environ', 'expected'), [({}, True), ({'TERM': 'dumb'}, False)]
)
def test_what_counts_as_a_terminal(environ, expected):
  stream = io.StringIO()
  assert not progress.Screen(stream, environ).is_terminal()
  stream.isatty = lambda: True
  assert progress.Screen(stream, environ).is_terminal() == expected
  assert not progress.Screen(stream, {'CI': 'true'}).is_terminal()


def test_format_of_seconds_and_numbers():
  got = [progress.format_seconds(s) for s in (59.4, 185, 7625)]
  assert got == ['59 s', '3 min 05 s', '2 h 07 min']
  numbers = {'loss': float('nan'), 'accuracy': 45.26, 'up_mb': 1.23456}
  want = ['loss -', 'accuracy 45.3 %', 'up mb 1.235']
  assert progress.format_numbers(numbers) == want


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
    "  progress.warn('checkpoint [8] ± is damaged')\n"
  )
  assert 'Warning: checkpoint [8] ± is damaged' in drawn
  last = drawn.splitlines()[-1]
  assert re.search(r'training ━+ 4/4 loss 1.500  812 images/s', last)
  assert 'evaluation' not in last


def test_compilation_is_in_no_estimate_of_the_time_left():
  """Nor in a rate: a trace that contains others counts once."""
  now, compiled, stream = [100.0], [7.0], io.StringIO()
  clocks = (lambda: now[0]), (lambda: compiled[0])
  screen = progress.Screen(stream, {}, *clocks)
  with screen.progress('a', 4) as bar:
    screen.say('compiling')
    for done, more in ((1, 60.0), (2, 0.0)):
      now[0] += 3.0 + more
      compiled[0] += more
      bar.update(done)
  lines = stream.getvalue().splitlines()
  assert lines == ['compiling', 'round 1/4  9 s left', 'round 2/4  6 s left']

  before, name = progress.compiled_seconds(), f'{progress.COMPILING}trace'
  progress.add_compiled(name, 1e-9)
  progress.add_compiled(name, 1e6)  # the function that called all before
  progress.add_compiled('/jax/other', 1e9)
  assert progress.compiled_seconds() == pytest.approx(1e6) != before
  progress._spans.clear()
