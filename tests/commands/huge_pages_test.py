"""A command begins again with huge pages: once, and as it was called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import huge_pages

ROOT = Path(__file__).parents[2]
GLIBC, ASKED = 'glibc 2.35', 'always [madvise] never'
COMMAND = """
import os, sys
from pathlib import Path
print('begins', flush=True)
from experiments import huge_pages
huge_pages.MODES = Path(sys.argv[1])
huge_pages.ask()
print(sys.argv[2:], os.environ.get('GLIBC_TUNABLES'))
"""


@pytest.mark.parametrize(
  ('environ', 'libc', 'modes', 'want'),
  [
    ({}, GLIBC, ASKED, True),
    ({}, 'glibc 3.1', ASKED, True),
    ({'GLIBC_TUNABLES': 'glibc.malloc.check=1'}, GLIBC, ASKED, True),
    ({'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=0'}, GLIBC, ASKED, False),
    ({}, 'glibc 2.34', ASKED, False),
    ({}, '', ASKED, False),  # another library
    ({}, GLIBC, '[always] madvise never', False),
    ({}, GLIBC, 'always madvise [never]', False),
    ({}, GLIBC, '', False),  # another system
  ],
)
def test_who_asks(environ, libc, modes, want):
  assert huge_pages.can_ask(environ, libc, modes) is want


def run(tmp_path, modes, **environ):
  """Return the lines of a command that asks, called with two words."""
  file = tmp_path / 'enabled'
  file.write_text(modes)
  kept = {k: v for k, v in os.environ.items() if k != huge_pages.VARIABLE}
  command = [sys.executable, '-c', COMMAND, str(file), '--a=b c', 'd']
  done = subprocess.run(
    command,
    cwd=ROOT,
    env={**kept, **environ},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout.splitlines()


@pytest.mark.skipif(
  not huge_pages.can_ask({}, huge_pages._libc(), ASKED),
  reason='no glibc that knows huge pages',
)
def test_a_command_begins_again_as_it_was_called(tmp_path):
  *begun, last = run(tmp_path, ASKED, GLIBC_TUNABLES='glibc.malloc.check=0')
  assert begun == ['begins'] * 2
  tunables = 'glibc.malloc.check=0:glibc.malloc.hugetlb=1'
  assert last == f"['--a=b c', 'd'] {tunables}"


def test_a_command_that_cannot_ask_goes_on(tmp_path):
  got = run(tmp_path, 'always madvise [never]')
  assert got == ['begins', "['--a=b c', 'd'] None"]


def test_a_restart_that_fails_changes_nothing(monkeypatch):
  def refused(*arguments):
    raise OSError(*arguments)

  monkeypatch.setattr(os, 'execve', refused)
  monkeypatch.setattr(huge_pages, '_modes', lambda: ASKED)
  monkeypatch.setattr(huge_pages, '_libc', lambda: GLIBC)
  before = dict(os.environ)
  huge_pages.ask()
  assert dict(os.environ) == before
