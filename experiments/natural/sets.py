"""Sets whose clients exist: hospitals, users, speakers, authors, stations.

  fedjax-pfl prepare wisdm --from=FOLDER --data_dir=DIR

writes one file of each below DIR, wisdm.csv: a table with the columns client,
split, label and features; for images and sounds a list of the files in FOLDER;
for a text an .npz. sets.toml says where the sets come from.
"""

import os
import pathlib
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from experiments.natural import readers
from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import BadInput, bad_input, expand_home
from fedjax_pfl.data.stored_arrays import data_root

SETS = tomllib.loads(
  pathlib.Path(__file__).with_suffix('.toml').read_text(encoding='utf-8')
)
# How runs find the clients of what is written.
TABLE = {'client': 'client', 'split': 'split'}
OTHERS = {'partition': 'natural', 'num_clients': 0}


def fields_of(name: str, root: pathlib.Path) -> dict[str, Any]:
  """Return the fields of a config that reads a prepared set."""
  settings = SETS[name]['settings']
  kind = settings['dataset']
  file = root / f'{name}{".npz" if kind == "npz" else ".csv"}'
  clients = TABLE | OTHERS if kind == 'table' else OTHERS
  fields = {**settings, **clients, 'data_dir': str(file)}
  if 'metrics' in fields:
    fields['metrics'] = tuple(fields['metrics'])
  return fields


def prepare(
  names: Sequence[str],
  folder: str | os.PathLike,
  data_dir: str = '',
  log: Callable[[str], None] = progress.log,
) -> None:
  """Write the file of the one set that the folder holds."""
  root = data_root(data_dir)
  path = expand_home('from', folder)
  if len(names) != 1 or names[0] not in SETS or not folder or not path.is_dir():
    raise bad_input(
      'from',
      got=f'{folder or "no folder"} for {", ".join(names)}',
      expected='one set, and the folder with its files',
      choices=[*SETS],
    )
  (name,) = names
  content = _read(name, path)
  fields = fields_of(name, root)
  file = pathlib.Path(fields['data_dir'])
  with atomic_files.writing(root, 'data_dir'):
    root.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
      atomic_files.write_npz(file, content)
    else:
      atomic_files.write_csv(file, [*content[0]], content)
  as_typed = lambda value: ','.join(value) if type(value) is tuple else value
  flags = (f'--config.{name}={as_typed(x)}' for name, x in fields.items())
  log('Licence: {licence}. Cite {citation}.'.format(**SETS[name]))
  log(f'Written: {file}. Runs read it with {" ".join(flags)}')


def _read(name: str, folder: pathlib.Path) -> readers.Content:
  """Return the rows of a set; refuse files of another, or a part of it."""
  source = SETS[name]
  try:
    content, counts = getattr(readers, name)(folder)
  except Exception as error:  # files of others: csv and SciPy raise a dozen
    got = f'{folder}, and while reading it: {type(error).__name__}: {error}'
    raise _refusal(source, got) from error
  if counts != source['counts']:
    text = '{} clients and {:,} examples'.format
    got = f'{folder} with {text(*counts)}'
    raise _refusal(source, f'{got}, not {text(*source["counts"])}')
  return content


def _refusal(source: dict[str, Any], got: str) -> BadInput:
  return bad_input(
    'from',
    got=got,
    expected=f'a folder with {source["needs"]}',
    choices=[f'github:{source["origin"]}'],
  )
