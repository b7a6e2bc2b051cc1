"""The commands that a user can type in this installation.

They are files of experiments/, which a wheel brings with configs/ inside of the
package.
"""

import pathlib

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
  'export': ('export', 'one model of a run: numpy, PyTorch, ONNX'),
  'predict': ('predict', 'the classes of images by a model of a run'),
  'export-partition': (
    'export_partition',
    'the examples of every client, for PFLlib or as indices',
  ),
  'draw-partition': ('draw_partition', 'how labels lie over the clients'),
  'budget': ('budget', 'the bytes of a training, without training'),
  'analyse': ('analyse', 'accuracy on classes that a client has, or has not'),
  'settings': ('settings', 'every field of a config'),
}
# package, as it is imported -> the extra of setup.cfg that brings it
EXTRAS = {
  'tensorflow_datasets': 'tfds',
  'array_record': 'tfds',
  'matplotlib': 'figures',
  'jinja2': 'report',
  'pandas': 'results',
  'pyarrow': 'parquet',
  'sklearn': 'clustering',
  'tensorboardX': 'trackers',
  'wandb': 'wandb',
  'dp_accounting': 'privacy',
  'safetensors': 'safetensors',
  'onnx': 'onnx',
}


def folder() -> pathlib.Path:
  """Return the folder of experiments/ and configs/."""
  root = PACKAGE.parent
  # site-packages may hold somebody's own `experiments`, but no setup.cfg.
  is_clone = (root / 'setup.cfg').is_file() and (root / 'experiments').is_dir()
  return root if is_clone else PACKAGE / 'shipped'


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
