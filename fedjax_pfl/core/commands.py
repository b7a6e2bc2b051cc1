"""The commands that a user can type in this installation.

In a clone they are `python experiments/main.py`; a wheel brings the folders
`experiments` and `configs` inside of the package, and the command fedjax-pfl.
"""

import pathlib
import re

PACKAGE = pathlib.Path(__file__).parents[1]
# subcommand -> the file in experiments/, and a line of help
SUBCOMMANDS = {
  'train': ('main', 'run one experiment'),
  'report': ('report', 'one HTML page of finished runs'),
  'sweep': ('sweep', 'train every combination of some fields'),
  'compare': ('compare', 'your method and others, tuned alike'),
  'submit': ('submit', 'an entry of the leaderboard from a comparison'),
  'verify': ('verify', 'check entries, and compute their table again'),
  'reproduce': ('reproduce', 'a published table beside our numbers'),
  'prepare': ('prepare', 'download image sets'),
  'export': ('export', 'one model of a run as a plain .npz file'),
  'export-partition': (
    'export_partition',
    'the examples of every client, for PFLlib or as indices',
  ),
  'settings': ('settings', 'every field of a config'),
}
# package, as it is imported -> the extra of setup.cfg that brings it
EXTRAS = {
  'tensorflow_datasets': 'tfds',
  'array_record': 'tfds',
  'matplotlib': 'figures',
  'jinja2': 'report',
  'pandas': 'results',
  'sklearn': 'clustering',
  'tensorboardX': 'trackers',
  'wandb': 'wandb',
  'mlflow': 'mlflow',
  'dp_accounting': 'privacy',
  'safetensors': 'safetensors',
}
TYPED = re.compile(r'python experiments/(\w+)\.py')
CONFIG = re.compile(r'configs/(\w+)\.py\b')


def folder() -> pathlib.Path:
  """Return the folder of experiments/ and configs/."""
  root = PACKAGE.parent
  # site-packages may hold somebody's own `experiments`, but no setup.cfg.
  is_clone = (root / 'setup.cfg').is_file() and (root / 'experiments').is_dir()
  return root if is_clone else PACKAGE / 'shipped'


def command(name: str) -> str:
  """Return the words that run a subcommand here."""
  if folder() == PACKAGE.parent:
    return f'python experiments/{SUBCOMMANDS[name][0]}.py'
  return f'fedjax-pfl {name}'


def as_typed_here(text: str) -> str:
  """Return a help text with commands and configs that work here."""
  if folder() == PACKAGE.parent:
    return text
  names = {file: name for name, (file, _) in SUBCOMMANDS.items()}

  def change(match):
    return f'fedjax-pfl {names[match[1]]}' if match[1] in names else match[0]

  return CONFIG.sub(r'\1', TYPED.sub(change, text))


def pip_line(package: str) -> str:
  """Return the command that installs a package by its extra.

  >>> pip_line('matplotlib')
  "pip install -e '.[figures]'"
  """
  if package not in EXTRAS:
    return f'pip install {package}'
  is_clone = folder() == PACKAGE.parent
  flag, source = ('-e ', '.') if is_clone else ('', 'fedjax_pfl')
  return f"pip install {flag}'{source}[{EXTRAS[package]}]'"
