"""Command lines with mistakes: each ends in a sentence, or begins a run.

Up to where the run directory would be made; in this process, and a few as
processes of their own.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

from absl import flags
from hypothesis import strategies as st

from experiments import commandline
from experiments.commandline import ROOT
from faults import values
from faults.mutations import CONFIGS, images_once, mutations, quick_file
from faults.outcome import Outcome, draw_many, outcome_of
from faults.watch import Trial, attempt, wrong_sentence
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config
from fedjax_pfl.training import build

NAMES = ('config', 'workdir')
PROCESSES = 40
GOOD = 'run'  # a workdir in which a run could begin: it is not tried
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
WORDS = (
  *('--config.shards_per_client', '--config.', '--config', '--workdir', '--'),
  *('-', '', '--confg=x', '--nowhere', 'quick', '3', '--config.=1', '—'),
  *('--noconfig', '--flagfile=nowhere', '--flagfile=text.txt', '--x=y=z'),
  *('-config.shards_per_client=many', '--config..=1', '--config.a.b.c=1'),
)


def run(count: int, seed: int) -> list[Outcome]:
  """Try so many command lines here, and PROCESSES of them as processes."""
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    trials, lines = _try_all(count, seed, folder)
    # Only what is refused: a process that is not would train.
    refused = [
      words
      for words, trial in zip(lines, trials, strict=True)
      if trial.refusal and not any('\0' in word for word in words)
    ][:PROCESSES]
    before = _names(folder)
    with futures.ThreadPoolExecutor(2) as pool:
      ends = [*pool.map(lambda words: _process(words, folder), refused)]
    assert _names(folder) == before
    return [
      _of_trials(trials, lines),
      outcome_of('commands as processes', ends),
    ]


def try_here(count: int, seed: int, folder: Path) -> Outcome:
  """Try so many command lines in this process; the folder is empty."""
  return _of_trials(*_try_all(count, seed, folder))


def _try_all(
  count: int, seed: int, folder: Path
) -> tuple[list[Trial], list[list[str]]]:
  for name, content in FILES.items():
    (folder / name).write_bytes(content + b'\n')
  lines, trials = draw_many(command_lines(folder), count, seed), []
  with contextlib.chdir(folder), images_once():
    before = _names(folder)
    for words in lines:
      with own_flags():
        trials.append(attempt(lambda own=words: begin(own)))
    assert _names(folder) == before
  return trials, lines


def _of_trials(trials: list[Trial], lines: list[list[str]]) -> Outcome:
  return outcome_of(
    'command lines',
    [
      f'{trial.faults[0]}: {words}'[:800] if trial.faults else ''
      for trial, words in zip(trials, lines, strict=True)
    ],
  )


def begin(words: list[str]) -> None:
  """Do what the command does, up to the first file that it would write."""
  overrides = commandline.parse_flags(['main.py', *words], NAMES)
  settings = commandline.read_settings(flags.FLAGS.config, overrides)
  built = build.build_experiment(settings)
  if flags.FLAGS.workdir != GOOD:
    path = Path(flags.FLAGS.workdir)
    config = to_config(built.settings)
    run_dir.open_run(path, config, data=built.data_id)
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


def _process(words: list[str], folder: Path) -> str:
  """Return what is wrong with the end of a process."""
  done = subprocess.run(
    [sys.executable, str(ROOT / 'experiments' / 'main.py'), *words],
    cwd=folder,
    env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'JAX_PLATFORMS': 'cpu'},
    stdin=subprocess.DEVNULL,
    start_new_session=True,  # a terminal would stop it in the background
    capture_output=True,
    text=True,
  )
  # A directory is tried last, after lines about the data.
  *_, message = ['', *done.stderr.strip().splitlines()]
  if done.returncode != 1 or 'Traceback' in done.stderr:
    return f'{words}: status {done.returncode}: {message[-300:]}'
  wrong = wrong_sentence(message)
  return f'{words}: {wrong}' if wrong else ''


@st.composite
def command_lines(draw, folder: Path) -> list[str]:
  """Draw the words of a command line, without the name of the program."""
  mutation = draw(mutations(written=True))
  config = f'{ROOT}/configs/{quick_file(mutation.config)}'
  workdir = GOOD
  fields = [f'--config.{name}={text}' for name, text in mutation.changes]
  kind = draw(st.sampled_from(['config', 'workdir', 'word', 'word', 'field']))
  if kind == 'config':
    config = draw(_configs(folder))
  elif kind == 'workdir':
    workdir, fields = draw(_workdirs(folder)), []
    config = f'{ROOT}/configs/digits.py:fedavg,quick'
  elif kind == 'word':
    misspelt = values.near('config').map('--{}=x'.format)
    fields.append(draw(st.sampled_from(WORDS) | misspelt))
  words = [f'--config={config}', f'--workdir={workdir}', *fields]
  if draw(st.integers(0, 9)) == 9:
    words.remove(draw(st.sampled_from(words)))
  return draw(st.just(words) | st.permutations(words))


def _configs(folder: Path) -> st.SearchStrategy[str]:
  file = f'configs/{CONFIGS[0].partition(":")[0]}.py'
  known = f'{ROOT}/{file}'
  return st.one_of(
    st.sampled_from([str(folder / name) for name in FILES]),
    st.sampled_from(
      [
        *('nope.py', 'configs', str(ROOT / 'configs'), '.', ':', ':quick', '/'),
        *(f'{known}:', f'{known}:fast', f'{known}:quick:quick', f'{known}x'),
        *('', ' ', '\0.py', 'x' * 5000, '/dev/null', '~/x.py', 'main.py'),
        *(str(ROOT / 'README.md'), str(ROOT / 'configs' / 'common.py')),
      ]
    ),
    values.near(file).map(f'{ROOT}/{{}}'.format),
  )


def _workdirs(folder: Path) -> st.SearchStrategy[str]:
  file = folder / 'text.txt'
  return st.sampled_from(
    [
      *(
        '',
        str(file),
        str(file / 'below'),
        str(file / '..' / 'x'),
        str(folder),
      ),
      *('/dev/null', '/dev/null/x', '/proc/nowhere/x', 'x' * 5000, 'a\0b', '/'),
      str(ROOT),
    ]
  )


def _names(folder: Path) -> set[str]:
  names = {path.name for path in folder.iterdir()}
  return names - {'__pycache__'}
