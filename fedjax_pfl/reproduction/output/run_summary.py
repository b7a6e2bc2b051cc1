"""A CSV of all runs: a row for every evaluated view, to be committed.

Its numbers, the command that reproduces it, and the machine it ran on; paths of
the machine are left out. `commit` and `machine` are those of the run, also
where a view of it was evaluated later. `key` is that of the training, followed
by that of the evaluation where it is not the run's own; `data` is the
fingerprint of its data; `run` is its directory in results/runs, '' where it is
not there.
"""

import csv
import io
import os
import pathlib
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.reproduction.results.gather import (
  Evaluation,
  Provenance,
  Training,
)
from fedjax_pfl.reproduction.results.results import Results
from fedjax_pfl.settings import (
  FIELDS,
  Settings,
  changing,
  replace,
)
from fedjax_pfl.settings.field import EVALUATION, TRAINING
from fedjax_pfl.training import keys

COLUMNS = (
  *('setting', 'seed', 'view', 'mean', 'std', 'num_clients', 'worst_decile'),
  *('command', 'commit', 'machine', 'seconds', 'data', 'key', 'run'),
)
# Fields that are in the command, but not in the name of a setting.
UNNAMED = ('seed', 'views', 'eval_views', 'eval_every', 'init_from')
# Fields that are not in the command: they do not change a number.
LEFT_OUT = {*FIELDS} - {*changing(TRAINING), *changing(EVALUATION)}
LEFT_OUT -= {'views', 'quick'}

Row = dict[str, str]


def summary_rows(
  results: Results,
  configs: Mapping[str, Settings],
  *,
  trainings: Iterable[str] | None = None,
  runs: Mapping[str, pathlib.Path] = {},
) -> list[Row]:
  """Return a row for every evaluated view, by setting, seed and view.

  `configs` maps names of configs ('fedconcat:moon', 'digits:fedbabu') to their
  settings: a command begins with the nearest one. With `trainings`,
  only of these keys. `runs` has run directories by training key. `mean`, `std`
  (over clients) and `worst_decile` are in percent; the view 'global' is the
  server's model on the whole test set.
  """
  wanted, rows = None if trainings is None else {*trainings}, []
  for training, evaluation in results.evaluations():
    if wanted is None or training.key in wanted:
      place = runs.get(training.key)
      rows += _rows_of(
        evaluation, training, place.name if place else '', configs
      )
  return sort_rows(rows)


def sort_rows(rows: Iterable[Row]) -> list[Row]:
  """Return rows in the order of the file."""
  return sorted(
    rows,
    key=lambda row: (row['setting'], int(row['seed']), row['view'], row['key']),
  )


def write_csv(path: str | os.PathLike, rows: Iterable[Row]) -> None:
  """Replace a CSV file by these rows, with a header."""
  text = io.StringIO()
  writer = csv.DictWriter(text, COLUMNS, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  atomic_files.write_bytes(path, text.getvalue().encode())


def nearest(
  settings: Settings, configs: Mapping[str, Settings]
) -> tuple[str, dict[str, Any]]:
  """Return the config that differs in the fewest fields, and these fields.

  A config with a hyperparameter that the settings lack is left out: a command
  cannot remove it.
  """
  given = keys.flat(settings)
  found = {}
  for name, config in configs.items():
    known = keys.flat(config)
    if known.keys() <= given.keys():
      found[name] = {
        field: value
        for field, value in given.items()
        if field not in LEFT_OUT
        and (field not in known or value != known[field])
      }
  assert found, f'no config without hyperparameters among {list(configs)}'
  name = min(found, key=lambda one: (len(found[one]), one))
  return name, found[name]


def command(
  settings: Settings,
  configs: Mapping[str, Settings],
  workdir: str,
) -> str:
  """Return the command that runs these settings.

  >>> command(settings, {'fedbabu_cifar10:fedavg': base}, 'runs/a')
  'python experiments/main.py --config=configs/fedbabu_cifar10.py:fedavg \
--config.shards_per_client=5 --workdir=runs/a'
  """
  name, fields = nearest(settings, configs)
  file, colon, argument = name.partition(':')
  words = [f'--config=configs/{file}.py{colon}{argument}']
  words += [f'--config.{field}={_text(fields[field])}' for field in fields]
  words.append(f'--workdir={workdir}')
  return shlex.join(['python', 'experiments/main.py', *words])


def _rows_of(
  evaluation: Evaluation,
  training: Training,
  run: str,
  configs: Mapping[str, Settings],
) -> list[Row]:
  settings = evaluation.settings
  if training.start:  # named by its key, as the run itself below
    settings = replace(settings, init_from=f'runs/{training.start}')
  name, fields = nearest(settings, configs)
  words = [
    f'{field}={_text(value)}'
    for field, value in fields.items()
    if field not in UNNAMED
  ]
  own = keys.evaluation_key(training.settings)
  key = keys.row_key(training.key, evaluation.evaluation, own)
  shared = {
    'setting': ' '.join([name, *words]),
    'seed': str(training.settings.seed),
    'commit': evaluation.provenance.commit,
    'machine': _machine(evaluation.provenance),
    'seconds': f'{training.provenance.seconds:.0f}',
    'data': training.data.partition('+')[0],
    'key': key,
    'run': run,
  }
  views = dict(evaluation.result['views'])
  if 'global' in evaluation.result:
    views['global'] = {'mean': evaluation.result['global']['accuracy']}
  return [
    shared
    | {
      'view': view,
      'command': command(_with(view, settings), configs, f'runs/{key}'),
      'mean': _number(one.get('mean')),
      'std': _number(one.get('std')),
      'worst_decile': _number(one.get('worst_decile')),
      'num_clients': str(one.get('num_clients', '')),
    }
    for view, one in views.items()
  ]


def _with(view: str, settings: Settings) -> Settings:
  """Return the settings; with a view that was evaluated after the run.

  'personal:best_round' is a choice among rounds of a view, 'global' the
  server's model.
  """
  name, views = view.partition(':')[0], settings.evaluation.views
  if name in views or name == 'global':
    return settings
  return replace(settings, views=(*views, name))


def _machine(provenance: Provenance) -> str:
  """Return 'Intel(R) Xeon(R) CPU @ 2.80GHz, 2 cores', or the accelerators."""
  devices, processor = provenance.devices, provenance.processor
  if devices.endswith('cpu cpu'):
    return processor or 'CPU'  # older runs lack its name
  return '; '.join(filter(None, (devices, processor)))


def _number(value: float | None) -> str:
  return '' if value is None else format_number(value)


def _text(value: Any) -> str:
  """Return a setting as it is written on a command line."""
  if isinstance(value, list | tuple):
    return ','.join(map(str, value)) if value else '()'
  return str(value)
