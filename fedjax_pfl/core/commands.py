"""The commands that a user can type in this installation.

In a clone they are `python experiments/main.py`; a wheel brings the folders
`experiments` and `configs` inside of the package, and the command fedjax-pfl.
"""

import pathlib

PACKAGE = pathlib.Path(__file__).parents[1]
# subcommand -> the file in experiments/, and a line of help
SUBCOMMANDS = {
  'train': ('main', 'run one experiment'),
  'report': ('report', 'one HTML page of finished runs'),
  'sweep': ('sweep', 'train every combination of some fields'),
  'compare': ('leaderboard', 'all methods tuned alike (leaderboard.py)'),
  'reproduce': ('reproduce', 'a published table beside our numbers'),
  'prepare': ('prepare', 'download image sets'),
  'export': ('export', 'one model of a run as a plain .npz file'),
  'export-partition': (
    'export_partition',
    'the examples of every client, for PFLlib or as indices',
  ),
  'settings': ('settings', 'every field of a config'),
}


def folder() -> pathlib.Path:
  """Return the folder of experiments/ and configs/."""
  root = PACKAGE.parent
  # site-packages may hold somebody's own `experiments`, but no setup.cfg.
  is_clone = (root / 'setup.cfg').is_file() and (root / 'experiments').is_dir()
  return root if is_clone else PACKAGE / 'shipped'


def command(name: str) -> str:
  """Return the words that run a subcommand here.

  >>> command('train')
  'python experiments/main.py'
  """
  if folder() == PACKAGE.parent:
    return f'python experiments/{SUBCOMMANDS[name][0]}.py'
  return f'fedjax-pfl {name}'
