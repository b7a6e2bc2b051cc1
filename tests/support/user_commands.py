"""Run a command of experiments/ as a user does, or in this process."""

import functools
import os
import runpy
import subprocess
import sys

from absl import flags
from pages import ROOT


def run(file, *flags, cwd=ROOT, **environ):
  """Return the finished process of experiments/FILE.py, with its output."""
  return subprocess.run(
    [
      sys.executable,
      str(ROOT / 'experiments' / f'{file}.py'),
      *map(str, flags),
    ],
    cwd=cwd,
    env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', **environ},
    capture_output=True,
    text=True,
  )


def load_command(monkeypatch, name):
  """Return main() of experiments/NAME, and its file; its flags are its own.

  Not a process: to start one takes longer than all that is tested.
  """
  values = flags.FlagValues()
  for define in [one for one in dir(flags) if one.startswith('DEFINE_')]:
    own = functools.partial(getattr(flags, define), flag_values=values)
    monkeypatch.setattr(flags, define, own)
  monkeypatch.setattr(flags, 'FLAGS', values)
  file = str(ROOT / 'experiments' / name)
  return runpy.run_path(file)['main'], file


def refusal(done) -> str:
  """Return the sentence with which a command ended."""
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert 'got ' in done.stderr and ', expected ' in done.stderr
  return done.stderr
