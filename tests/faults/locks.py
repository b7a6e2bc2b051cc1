"""Two processes on one run directory.

One holds the lock, another tries: the other ends in a sentence that names the
first, and has written nothing. Killed, the first leaves nothing in the way.
Of several that begin at the same moment, one gets the directory.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from faults import tiny
from faults.moments import read
from fedjax_pfl.runs import lock

# The module only: the package imports jax, which takes six seconds.
HOLD = f"""
import pathlib, sys, types
package = types.ModuleType('fedjax_pfl')
package.__path__ = [{str(Path(lock.__file__).parents[1])!r}]
sys.modules['fedjax_pfl'] = package
from fedjax_pfl.runs import lock
sys.stdin.readline()
try:
  lock.acquire(pathlib.Path(sys.argv[1]))
except ValueError as error:
  print(error, flush=True)
else:
  print('held', flush=True)
  sys.stdin.readline()
  lock.release(pathlib.Path(sys.argv[1]))
"""


@contextlib.contextmanager
def holders(folder: Path, number: int):
  """Yield processes that take the lock after `proceed`."""
  command = [sys.executable, '-c', HOLD, str(folder)]
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
  processes = [subprocess.Popen(command, **pipes) for _ in range(number)]
  try:
    yield processes
  finally:
    for process in processes:
      process.kill()
      process.communicate()


def proceed(process: subprocess.Popen) -> None:
  """Let a process proceed: take the lock, or then release it."""
  process.stdin.write('\n')
  process.stdin.flush()


def run(count: int, seed: int):
  """Try `count` pairs and as many races; there is nothing random in it."""
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    tiny.play(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    pairs = [pair(folder / f'pair{n}', n % 2, want) for n in range(count)]
    yield 'a second process on a run', pairs
    races = [race(folder / f'race{n}') for n in range(count)]
    yield 'a race for a directory', races


def pair(folder: Path, is_killed: int, want: dict) -> str:
  """Return '' if a run waits for the owner of its directory in a sentence."""
  folder.mkdir()
  with holders(folder, 1) as (owner,):
    proceed(owner)
    owner.stdout.readline()
    before = read(folder)
    end = tiny.how_it_ends(folder, want)
    name = f'process {owner.pid} on {os.uname().nodename}'
    if end != 'a sentence' or name not in tiny.last_sentence[-1]:
      return f'second process: {end} {tiny.last_sentence[-1:]}'
    if read(folder) != before:
      return f'the second process wrote {sorted(read(folder))}'
    if is_killed:
      owner.kill()
    else:
      proceed(owner)
    owner.wait()
    if not is_killed and lock.NAME in read(folder):
      return 'the lock stayed behind'
    end = tiny.how_it_ends(folder, want)
    return '' if end == 'same bits' else f'after the owner: {end}'


def race(folder: Path, number: int = 4) -> str:
  """Return '' if one of several gets the directory; the others are refused."""
  folder.mkdir()
  with holders(folder, number) as processes:
    for process in processes:
      proceed(process)
    output = [process.stdout.readline().strip() for process in processes]
    refused = [line for line in output if line.startswith('workdir: got')]
    alone = output.count('held') == 1 and len(refused) == number - 1
    return '' if alone else f'{output}'
