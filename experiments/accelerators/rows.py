"""The tables of docs/performance.md: every model and every method.

  models   a round of FedBABU on CIFAR-10, 10 of 100 clients, batch 50
  methods  the stages of configs/digits.py:METHOD,quick, and their evaluation

Each on one device and, for memory and collectives, on a mesh.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from configs import common
from experiments.accelerators import report
from experiments.accelerators.compilation import Compiled
from experiments.benchmarks.screen import number
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.models.task import MODELS

TABLES = ('models', 'methods')
SAME = {'resnet50_he'}  # another model begun differently: the same program
HEADS = (
  *('', 'side by side', 'kernels', 'GFLOP', 'MB an image', 'us an image'),
  *('temporary MiB', 'evaluation: kernels', 'temporary MiB'),
  *('on the mesh: side by side', 'temporary MiB', 'collectives'),
)
Log = Callable[[str], None]


def labels_of(table: str) -> list[str]:
  """Return what the rows of a table are about."""
  if table == 'methods':
    return [*available()]
  return [model for model in MODELS if model not in SAME]


def choose(
  tables: Sequence[str], labels: Sequence[str]
) -> dict[str, list[str]]:
  """Return the rows of every table that is asked for; all without labels."""
  for table in tables:
    if table not in TABLES:
      raise bad_input(
        'tables',
        got=table,
        expected='tables of accelerators',
        choices=TABLES,
        cause='a typing error',
      )
  every = {table: labels_of(table) for table in tables}
  known = [label for names in every.values() for label in names]
  for label in labels:
    if label not in known:
      raise bad_input(
        'labels',
        got=label,
        expected='models or methods of these tables',
        choices=known,
        cause='a typing error, or a method without its table',
      )
  return {
    table: [name for name in names if not labels or name in labels]
    for table, names in every.items()
  }


def config_of(table: str, label: str) -> dict[str, Any]:
  """Return the config of a row."""
  if table == 'methods':
    return common.load(f'digits:{label}', quick=True).to_dict()
  config = common.load('fedbabu_cifar10')
  config.model = label
  return config.to_dict()


def rows(
  where: report.Where, table: str, label: str, log: Log
) -> Iterator[tuple[str, ...]]:
  """Yield the rows of one model or method: a row for each of its stages."""
  config = config_of(table, label)
  kinds = ('round',) if table == 'models' else ('round', 'evaluation', 'begin')
  one = _compile(where._replace(devices=1), config, kinds, log)
  mesh = _compile(where, config, ('round',), log) if where.devices > 1 else {}
  rounds = [key for key in one if key[1] == 'round']
  for key in rounds:
    stage = key[0]
    evaluation = one.get((stage, 'evaluation'))
    name = label if len(rounds) == 1 else f'{label}, {stage}'
    yield (
      name,
      *_of_round(one[key]),
      *_of_evaluation(evaluation),
      *_of_mesh(mesh.get(key)),
    )


def markdown(cells: Sequence[str]) -> str:
  """Return a line of a table.

  >>> markdown(('a', '1'))
  '| a | 1 |'
  """
  return f'| {" | ".join(cells)} |'


def _compile(where, config, kinds, log) -> dict[tuple[str, str], Compiled]:
  plan = report.plan_for(where, config)
  found = {}
  for compiled in report.compile_plan(where, plan, kinds, log):
    if compiled.error:
      log(compiled.error)
    found[compiled.program.stage, compiled.program.kind] = compiled
  return found


def _of_round(row: Compiled) -> tuple[str, ...]:
  chunk = str(row.program.chunk)
  if row.step is None:
    return chunk, 'does not compile', '', '', '', ''
  images = row.program.images
  return (
    chunk,
    f'{row.step.kernels:,.0f}',
    number(row.step.flops / 1e9),
    number(row.step.bytes / 1e6 / images),
    number(1e6 * row.step_seconds / images),
    _temporary(row),
  )


def _of_evaluation(row: Compiled | None) -> tuple[str, str]:
  if row is None:
    return '', ''
  if row.memory is None:
    return 'does not compile', ''
  return f'{row.step.kernels:,.0f}' if row.step else '', _temporary(row)


def _of_mesh(row: Compiled | None) -> tuple[str, str, str]:
  if row is None:
    return '', '', ''
  chunk = str(row.program.chunk)
  if row.memory is None:
    return chunk, 'does not compile', ''
  moved = [
    f'{times:,.0f} {name}, {number(nbytes / 1e6)} MB'
    for name, (times, nbytes) in row.collectives.items()
  ]
  return chunk, _temporary(row), '; '.join(moved) or 'none'


def _temporary(row: Compiled) -> str:
  return f'{row.memory.temporary / 2**20:,.1f}'
