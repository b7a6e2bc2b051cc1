"""The base of all configs, their argument, and the list of them.

  --config=configs/fedbabu_cifar10.py         the paper's setting
  --config=configs/fedbabu_cifar10.py:quick   the same in about a minute
  --config=configs/digits.py:fedprox,quick    one of several in a file

A config states what differs from `base`. Any field can be given on the command
line: --config.rounds=5. The package computes derived values after that.

A docstring quotes published numbers as the command above them is to give them,
which a test compares with configs/tables (quoted_numbers_test.py):

  Published (fedbabu/13, personalised): 80.99 +- 7.64
"""

import importlib
import pathlib
from collections.abc import Collection

from ml_collections import config_dict

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.settings import defaults

FOLDER = pathlib.Path(__file__).parent
QUICK = 'quick'


def base(arg: str = '', **changes) -> config_dict.ConfigDict:
  """Return the shared defaults with `changes`, shrunk if arg is 'quick'."""
  c = config_dict.ConfigDict(defaults())
  c.rounds = config_dict.placeholder(int)  # None: follows from the epochs
  c.update(changes)
  if choose(arg)[1]:
    c.update(
      quick=True,
      num_clients=min(c.num_clients, 10),
      client_fraction=max(c.client_fraction, 0.2),
      max_train_examples=1000,
      rounds=4,
      local_epochs=1,
      eval_every=2,
    )
    c.finetune.epochs = (1,)
    if c.partition == 'semantic':
      c.update(
        min_client_size=min(c.min_client_size, 40),
        max_client_size=min(c.max_client_size, 160),
      )
  return c


def choose(
  arg: str, experiments: Collection[str] = (), default: str = ''
) -> tuple[str, str]:
  """Return the experiment that a config argument names, and 'quick' or ''.

  >>> choose('fedprox,quick', ['fedbabu', 'fedprox'], default='fedbabu')
  ('fedprox', 'quick')
  """
  words = arg.split(',') if arg else []
  named = [word for word in words if word in experiments]
  rest = [word for word in words if word not in experiments]
  if len(named) > 1 or rest not in ([], [QUICK]):
    unknown = [word for word in rest if word != QUICK]
    several = 'an experiment, quick, or both with a comma between'
    raise bad_input(
      'config argument',
      got=unknown[0] if unknown else arg,
      expected=several if experiments else 'nothing or quick',
      choices=[*experiments, QUICK],
    )
  return (*named, default)[0], ','.join(rest)


def config_files() -> list[pathlib.Path]:
  """Return the files of this folder that --config takes, by name."""
  files = sorted(FOLDER.glob('*.py'))
  return [path for path in files if '\ndef get_config(' in path.read_text()]


def available() -> tuple[str, ...]:
  """Return the names of all configs: .. 'digits:apfl', .. 'fedbabu_cifar10' ..

  The word after the colon is the argument, one of the file's EXPERIMENTS. Those
  of the user's own data, of OWN_DATA, are no settings without them.
  """
  names = []
  for path in config_files():
    module = importlib.import_module(f'configs.{path.stem}')
    if getattr(module, 'OWN_DATA', False):
      continue
    arguments = getattr(module, 'EXPERIMENTS', ())
    names += [f'{path.stem}:{arg}' for arg in arguments] or [path.stem]
  return tuple(names)


def load(name: str, quick: bool = False) -> config_dict.ConfigDict:
  """Return the config 'FILE' or 'FILE:ARGUMENT'."""
  stem, _, arg = name.partition(':')
  words = [*filter(None, [arg]), *[QUICK] * quick]
  return importlib.import_module(f'configs.{stem}').get_config(','.join(words))
