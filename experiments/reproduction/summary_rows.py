"""summary.csv: a row for every view of every run, to be committed.

Its numbers, the command that reproduces it, and the machine it ran on; paths of
the machine are left out. `commit` and `machine` are those of the run, also
where it got a view later; an evaluation with other settings has its own.
`key` is that of the training, followed by that of the evaluation where it is
not the run's own; `data` is the fingerprint of its data; `run` is its directory
in results/runs, '' where it is not there.

A row whose run directory is gone stays in the file: its number was quoted, with
its command and commit. No table and no claim has it any more. All other rows
follow from the runs, so they are the same however often they are written.
"""

import csv
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.reproduction.results import Results
from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import EVALUATION, TRAINING
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.charts.figure_file import format_number
from fedjax_pfl.results.runs.folder import Evaluation, machine_of
from fedjax_pfl.settings import FIELDS, Settings, changing, replace
from fedjax_pfl.training import keys

SUMMARY = 'summary.csv'
COLUMNS = (
  *('setting', 'seed', 'view', 'mean', 'std', 'num_clients', 'worst_decile'),
  *('command', 'commit', 'machine', 'seconds', 'data', 'key', 'run'),
)
NUMBERS = ('mean', 'std', 'num_clients', 'worst_decile')
# Fields that are in the command, but not in the name of a setting.
UNNAMED = ('seed', 'views', 'eval_views', 'eval_every', 'init_from')
# Fields that are not in the command: they do not change a number.
LEFT_OUT = {*FIELDS} - {*changing(TRAINING), *changing(EVALUATION)}
LEFT_OUT -= {'views', 'quick'}

Row = Mapping[str, str]
Configs = Mapping[str, Settings]  # by name: 'digits:fedbabu'
Flat = Mapping[str, Mapping[str, Any]]  # their fields: `keys.flat`


def write_summary(results: Results, configs: Configs) -> None:
  """Write summary.csv again: a row for every view, and old ones without a run.

  Its command is from the nearest config. `mean`, `std` (over clients) and
  `worst_decile` are in percent; the view 'global' is the server's model on the
  whole test set. An old row with other numbers is replaced, and that is logged.
  """
  flat = {name: keys.flat(config) for name, config in configs.items()}
  rows: dict[tuple[str, str], Row] = {}
  for evaluation in results.evaluations:
    for row in _rows_of(evaluation, flat):
      rows.setdefault((row['key'], row['view']), row)
  for row in read_csv(results.folder / SUMMARY):
    new = rows.setdefault((row['key'], row['view']), {**row, 'run': ''})
    if any(new[name] != row[name] for name in NUMBERS):
      progress.log(
        f'{row["setting"]}, seed {row["seed"]}, {row["view"]}: '
        f'{row["mean"]} in the summary is now {new["mean"]}.'
      )
  order = lambda x: (x['setting'], int(x['seed']), x['view'], x['key'])
  lines = sorted(rows.values(), key=order)
  atomic_files.write_csv(results.folder / SUMMARY, COLUMNS, lines)


def _rows_of(evaluation: Evaluation, configs: Flat) -> list[Row]:
  training, settings = evaluation.training, evaluation.run.settings
  run = training.run
  if training.start:  # named by its key, as the run itself below
    first = training.start.partition('-')[0]  # the training of that model
    settings = replace(settings, init_from=f'runs/{first}')
  name, fields = nearest(settings, configs)
  named = {field: fields[field] for field in fields if field not in UNNAMED}
  changes = [f'{field}={_text(value)}' for field, value in named.items()]
  key, origin = training.key, run.record
  # A view that the run got later counts as one of the run.
  if evaluation.key != keys.evaluation_key(run.settings):
    key, origin = f'{key}_{evaluation.key}', evaluation.run.record
  shared = {
    'setting': ' '.join([name, *changes]),
    'seed': str(run.settings.seed),
    'commit': origin.get('commit') or '',
    'machine': machine_of(origin),
    'seconds': f'{run.result["seconds"]:.0f}',
    'data': run.data,
    'key': key,
    'run': run.path.name,
  }
  result, rows = evaluation.run.result, []
  views = dict(result['views'])
  if 'global' in result:
    views['global'] = {'mean': result['global']['accuracy']}
  for view, summary in views.items():
    measures = 'mean', 'std', 'worst_decile'
    numbers = {name: format_number(summary.get(name)) for name in measures}
    # A view that was evaluated after the run. 'personal:best_round' is a choice
    # among rounds of a view, 'global' the server's model.
    short, known = view.partition(':')[0], settings.evaluation.views
    evaluated = settings
    if short not in (*known, 'global'):
      evaluated = replace(settings, views=(*known, short))
    numbers['command'] = command(evaluated, configs, f'runs/{key}')
    numbers['num_clients'] = str(summary.get('num_clients', ''))
    rows.append({**shared, 'view': view, **numbers})
  return rows


def nearest(settings: Settings, configs: Flat) -> tuple[str, dict[str, Any]]:
  """Return the config that differs in the fewest fields, and these fields.

  A config with a hyperparameter that the settings lack is left out: a command
  cannot remove it.
  """
  given, absent = keys.flat(settings), object()
  shown = {name: given[name] for name in given if name not in LEFT_OUT}
  differing = {
    name: {k: v for k, v in shown.items() if known.get(k, absent) != v}
    for name, known in configs.items()
    if known.keys() <= given.keys()
  }
  assert differing, f'no config without hyperparameters among {list(configs)}'
  return min(differing.items(), key=lambda pair: (len(pair[1]), pair[0]))


def command(settings: Settings, configs: Flat, workdir: str) -> str:
  """Return the command that runs these settings.

  >>> command(settings, {'fedavg_cifar10': keys.flat(base)}, 'runs/a')
  'python experiments/main.py --config=configs/fedavg_cifar10.py \
--config.shards_per_client=5 --workdir=runs/a'
  """
  name, fields = nearest(settings, configs)
  file, colon, argument = name.partition(':')
  flags = [f'--config=configs/{file}.py{colon}{argument}']
  flags += [f'--config.{field}={_text(fields[field])}' for field in fields]
  flags.append(f'--workdir={workdir}')
  return shlex.join(['python', 'experiments/main.py', *flags])


def _text(value: Any) -> str:
  """Return a setting as it is written on a command line."""
  if isinstance(value, list | tuple):
    return ','.join(map(str, value)) if value else '()'
  return str(value)


def read_csv(path: AnyPath) -> list[Row]:
  """Return the rows of summary.csv; none without the file."""
  path = Path(path)
  if not path.is_file():
    return []
  try:
    first, *lines = csv.reader(path.read_bytes().decode().splitlines())
    if tuple(first) != COLUMNS:
      raise ValueError(f'the columns {", ".join(first)}')
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
    for row in rows:
      for number in (row['seed'], row['num_clients'] or 0):
        int(number)
      for name in (*NUMBERS, 'seconds'):
        float(row[name] or 0)
  except (ValueError, csv.Error) as error:
    raise bad_input(
      'results',
      got=f'{path} with {error}',
      expected=f'a summary of this version, with {", ".join(COLUMNS)}',
      choices=[
        'put back the file of this version',
        'move it away: it is made again, without rows of runs that are gone',
      ],
    ) from error
  return rows
