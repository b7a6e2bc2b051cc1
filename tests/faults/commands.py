"""Command lines with mistakes: each ends in a sentence, or begins a run.

Up to where the run directory would be made; in this process, and a few as
processes of their own.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

from absl import flags

from experiments import commandline
from faults import values
from faults.mutations import (
  CONFIGS,
  ROOT,
  draw_mutations,
  images_once,
  quick_file,
)
from faults.outcome import Outcome
from faults.watch import attempt, wrong_sentence
from fedjax_pfl.runs import identity
from fedjax_pfl.settings import to_config
from fedjax_pfl.training import build

NAMES = ('config', 'workdir')
PROCESSES = 40
# A file of one line each; the name says what is wrong with it.
FILES = {
  'syntax.py': b'def get_config(:',
  'nothing.py': b'x = 1',
  'none.py': b'def get_config(arg=""): pass',
  'number.py': b'get_config = 5',
  'dict.py': b'def get_config(arg=""): return {"seed": 1}',
  'list.py': b'def get_config(arg=""): return [1]',
  'raises.py': b'def get_config(arg=""): raise KeyError("x")',
  'exits.py': b'import sys; sys.exit(3)',
  'arguments.py': b'def get_config(a, b, c): pass',
  'bytes.py': b'\xff\xfe\x00',
  'imports.py': b'import nowhere',
  'deep.py': b'def get_config(a=""): return get_config(a)',
  'empty.py': b'from ml_collections import ConfigDict as get_config',
  'placeholder.py': b'from ml_collections import config_dict as c\n'
  b'def get_config(a=""): return c.ConfigDict('
  b'{"seed": c.required_placeholder(int)})',
  'text.txt': b'seed = 1',
}


def run(count: int, seed: int) -> list[Outcome]:
  """Try so many command lines here, and PROCESSES of them as processes."""
  with tempfile.TemporaryDirectory() as folder:
    here = try_here(count, seed, Path(folder))
    lines = draw_lines(count, seed, Path(folder))
    return [here, _as_processes(lines, Path(folder))]


def try_here(count: int, seed: int, folder: Path) -> Outcome:
  """Try so many command lines in this process; the folder is empty."""
  for name, content in FILES.items():
    (folder / name).write_bytes(content + b'\n')
  return _in_this_process(draw_lines(count, seed, folder), folder)


def draw_lines(count: int, seed: int, folder: Path) -> list[list[str]]:
  """Return so many command lines, words without the name of the program."""
  draw = random.Random(seed)
  mutations = iter(draw_mutations(10 * count, seed + 1))
  written = (one for one in mutations if one.written)
  return [_draw_line(draw, next(written), folder) for _ in range(count)]


def begin(words: list[str]) -> None:
  """Do what the command does, up to the first file that it would write."""
  overrides = commandline.parse_flags(['main.py', *words], NAMES)
  settings = commandline.read_settings(flags.FLAGS.config, overrides)
  built = build.build_experiment(settings)
  path = Path(flags.FLAGS.workdir)
  if '\0' in str(path) or not _can_be_made(path):
    identity.open_directory(
      path, to_config(built.settings), built.data_id, print
    )
    raise AssertionError(f'{path} was made')


@contextlib.contextmanager
def own_flags() -> Iterator[None]:
  """Let a command define its flags anew; absl has one place for all."""
  before = flags.FLAGS
  flags.FLAGS = own = flags.FlagValues()
  for name in NAMES:
    flags.DEFINE_string(name, None, f'a {name}', flag_values=own)
  try:
    yield
  finally:
    flags.FLAGS = before


def _in_this_process(lines: list[list[str]], folder: Path) -> Outcome:
  failures = []
  with contextlib.chdir(folder), images_once():
    before = _names(folder)
    for words in lines:
      with own_flags():
        trial = attempt(lambda words=words: begin(words))
      failures += [f'{fault}: {words}'[:800] for fault in trial.faults[:1]]
    assert _names(folder) == before
  well = len(lines) - len(failures)
  return Outcome('command lines', len(lines), well, tuple(failures))


def _as_processes(lines: list[list[str]], folder: Path) -> Outcome:
  """Only what is refused: a process that is not would train."""
  chosen = []
  with contextlib.chdir(folder), images_once():
    for words in lines:
      with own_flags():
        trial = attempt(lambda words=words: begin(words))
      if trial.refusal and not any('\0' in word for word in words):
        chosen.append(words)
      if len(chosen) == PROCESSES:
        break
  before = _names(folder)
  with futures.ThreadPoolExecutor(2) as pool:
    problems = list(pool.map(lambda words: _process(words, folder), chosen))
  failures = [
    f'{words}: {problem}'
    for words, (problem, _) in zip(chosen, problems, strict=True)
    if problem
  ]
  if _names(folder) != before:
    failures.append(f'left {sorted(_names(folder) - before)}')
  slowest = max(seconds for _, seconds in problems)
  print(f'processes: the slowest ended after {slowest:.1f} s, with its imports')
  well = len(chosen) - len(failures)
  return Outcome('commands as processes', len(chosen), well, tuple(failures))


def _process(words: list[str], folder: Path) -> tuple[str, float]:
  """Return what is wrong with the end of a process, and its seconds."""
  began = time.perf_counter()
  done = subprocess.run(
    [sys.executable, str(ROOT / 'experiments' / 'main.py'), *words],
    cwd=folder,
    env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'JAX_PLATFORMS': 'cpu'},
    stdin=subprocess.DEVNULL,
    start_new_session=True,  # a terminal would stop it in the background
    capture_output=True,
    text=True,
  )
  seconds = time.perf_counter() - began
  # A directory is tried last, after lines about the data.
  *_, message = done.stderr.strip().splitlines() or ['']
  if done.returncode != 1 or 'Traceback' in done.stderr:
    return f'status {done.returncode}: {message[-300:]}', seconds
  return wrong_sentence(message), seconds


def _draw_line(draw: random.Random, mutation, folder: Path) -> list[str]:
  config = f'--config={ROOT}/configs/{quick_file(mutation.config)}'
  workdir = '--workdir=run'
  fields = [f'--config.{name}={text}' for name, text in mutation.changes]
  kind = draw.random()
  if kind < 0.25:
    config = _draw_config(draw, folder)
  elif kind < 0.4:
    workdir = f'--workdir={draw.choice(_workdirs(folder))}'
    config, fields = f'--config={ROOT}/configs/digits.py:fedavg,quick', []
  elif kind < 0.75:
    fields.append(draw.choice(_odd_words(draw)))
  words = [config, workdir, *fields]
  if kind > 0.9:
    words.remove(draw.choice(words))
  if kind > 0.8:
    draw.shuffle(words)
  return words


def _draw_config(draw: random.Random, folder: Path) -> str:
  name = f'configs/{draw.choice(CONFIGS).partition(":")[0]}.py'
  known = f'{ROOT}/{name}'
  return '--config=' + draw.choice(
    [
      *(str(folder / draw.choice([*FILES])) for _ in range(8)),
      *('nope.py', 'configs', str(ROOT / 'configs'), '.', ':', ':quick', '/'),
      *(f'{known}:', f'{known}:fast', f'{known}:quick:quick', f'{known}x'),
      *('', ' ', '\0.py', 'x' * 5000, '/dev/null', '~/x.py', 'main.py'),
      *(str(ROOT / 'README.md'), str(ROOT / 'configs' / 'common.py')),
      # The same draws wherever the repository lies.
      f'{ROOT}/{values.near(name, draw)}',
    ]
  )


def _workdirs(folder: Path) -> list[str]:
  return [
    *('', str(folder / 'text.txt'), str(folder / 'text.txt' / 'below')),
    *(str(folder), '/dev/null', '/dev/null/x', '/proc/nowhere/x', 'x' * 5000),
    *('a\0b', '/', str(ROOT), str(folder / 'text.txt' / '..' / 'x')),
  ]


def _odd_words(draw: random.Random) -> list[str]:
  return [
    *(
      '--config.shards_per_client',
      '--config.',
      '--config',
      '--workdir',
      '--',
      '-',
      '',
    ),
    *('--confg=x', '--nowhere', 'quick', '3', '--config.=1', '--noconfig'),
    *('--flagfile=nowhere', '--flagfile=text.txt', '--undefok=x', '--x=y=z'),
    *(
      '-config.shards_per_client=many',
      '--config..=1',
      '--config.a.b.c=1',
      '—',
    ),
    f'--{values.near("config", draw)}=x',
    f'--config.{draw.choice(values.WORDS)}={draw.choice(values.TEXTS)}',
    f'--config.seed={draw.choice(values.TEXTS)}',
  ]


def _can_be_made(path: Path) -> bool:
  """Return whether a run could begin here: then it is not tried."""
  if len(path.name) > 255:
    return False
  if path.exists():
    return path.is_dir() and not any(path.iterdir())
  return path.parent.is_dir() and path.parent != Path('/proc')


def _names(folder: Path) -> set[str]:
  names = {path.name for path in folder.iterdir()}
  return names - {'__pycache__'}
