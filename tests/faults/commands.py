"""Command lines with mistakes: each ends in a sentence, or begins a run.

Up to where the run directory would be made.
"""

import contextlib
import tempfile
from pathlib import Path
from unittest import mock

from absl import flags
from hypothesis import strategies as st

from configs import common
from experiments import commandline
from experiments.commandline import ROOT
from faults import values
from faults.mutations import ABSENT, CONFIGS, images_once, mutations
from faults.watch import attempt
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config
from fedjax_pfl.training import build

NAMES = ('config', 'workdir')
GOOD = 'run'  # a workdir in which a run could begin: it is not tried
# A file of one line each; the name says what is wrong with it.
FILES = {
  'syntax.py': b'def get_config(:',
  'nothing.py': b'x = 1',
  'none.py': b'def get_config(arg=""): pass',
  'number.py': b'get_config = 5',
  'dict.py': b'def get_config(arg=""): return {"seed": 1}',
  'raises.py': b'def get_config(arg=""): raise KeyError("x")',
  'exits.py': b'import sys; sys.exit(3)',
  'bytes.py': b'\xff\xfe\x00',
  'imports.py': b'import nowhere',
  'deep.py': b'def get_config(a=""): return get_config(a)',
  'empty.py': b'from ml_collections import ConfigDict as get_config',
  'text.txt': b'seed = 1',
}
WORDS = """--config.shards_per_client --config. --config --workdir -- -
  --confg=x --nowhere quick 3 --config.=1 — --noconfig --flagfile=nowhere
  --flagfile=text.txt --x=y=z -config.shards_per_client=many --config..=1
  --config.a.b.c=1"""
FILE = f'configs/{CONFIGS[0].partition(":")[0]}.py'
KNOWN = f'{ROOT}/{FILE}'
ODD_CONFIGS = f"""nope.py configs . : :quick / /dev/null ~/x.py main.py
  {ROOT}/configs {ROOT}/README.md {ROOT}/configs/common.py {KNOWN}: {KNOWN}:fast
  {KNOWN}:quick:quick {KNOWN}x {ROOT}"""
ODD_WORKDIRS = f"""{ROOT} text.txt text.txt/below text.txt/../x . / /dev/null
  /dev/null/x /proc/nowhere/x"""
ODD = ['', ' ', 'a\0b', 'x' * 5000]


def run(count: int, seed: int):
  """Try so many command lines in this process, in a folder of odd files."""
  ends = []
  with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    for name, content in FILES.items():
      Path(name).write_bytes(content + b'\n')
    with images_once():
      for words in values.draw_many(command_lines(), count, seed):
        fault = attempt(lambda own=words: begin(own)).fault
        ends.append(fault and f'{fault}: {words}'[:800])
    assert {path.name for path in Path().iterdir()} - {'__pycache__'} == {
      *FILES
    }
  yield 'command lines', ends


def begin(words: list[str]) -> None:
  """Do what the command does, up to the first file that it would write."""
  own = flags.FlagValues()  # absl has one place for all commands
  for name in NAMES:
    flags.DEFINE_string(name, None, f'a {name}', flag_values=own)
  with mock.patch.object(flags, 'FLAGS', own):
    overrides, _ = commandline.parse_words(['main.py', *words], NAMES)
  settings = commandline.read_settings(own.config, overrides)
  built = build.build_experiment(settings)
  if own.workdir != GOOD:
    path = Path(own.workdir)
    config = to_config(built.settings)
    run_dir.open_run(path, config, data=built.data_id)
    raise AssertionError(f'{path} was made')


@st.composite
def command_lines(draw) -> list[str]:
  """Draw the words of a command line, without the name of the program."""
  config, changes = draw(mutations())
  file, _, argument = config.partition(':')
  argument = f'{argument},{common.QUICK}' if argument else common.QUICK
  given = {'config': f'{ROOT}/configs/{file}.py:{argument}', 'workdir': GOOD}
  fields = [
    f'--config.{name}={draw(as_text(value))}' for name, value in changes
  ]
  kind = draw(st.sampled_from(['config', 'workdir', 'word', 'word', 'field']))
  if kind == 'config':
    odd = st.sampled_from([*FILES, *ODD, *ODD_CONFIGS.split()])
    misspelt = values.near(FILE).map(f'{ROOT}/{{}}'.format)
    given['config'] = draw(odd | misspelt)
  elif kind == 'workdir':
    given['workdir'] = draw(st.sampled_from([*ODD, *ODD_WORKDIRS.split()]))
    given['config'] = f'{ROOT}/configs/digits.py:fedavg,quick'
    fields = []
  elif kind == 'word':
    misspelt = values.near('config').map('--{}=x'.format)
    fields.append(draw(st.sampled_from(['', *WORDS.split()]) | misspelt))
  words = [*(f'--{name}={value}' for name, value in given.items()), *fields]
  if draw(st.integers(0, 9)) == 9:
    words.remove(draw(st.sampled_from(words)))
  return draw(st.just(words) | st.permutations(words))


def as_text(value) -> st.SearchStrategy[str]:
  """Draw the text of a value, or another; one that is left out is another."""
  if value is ABSENT:
    return values.TEXTS
  text = value if isinstance(value, str) else repr(value)
  return st.just(text) | values.TEXTS
