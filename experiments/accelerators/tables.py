"""The tables of docs/dev/accelerators.md: their rows, and what is stored.

  models    a round, at the batch of the paper that has the model
  methods   the stages of configs/digits.py:METHOD, 8 of 20 clients in a round,
            their beginnings and their evaluation

on one device; on a mesh the rounds of all methods and of some models. Clients
side by side are those of 'auto' where memory is no limit, so that it need not
be asked. Records are in results/accelerators/PLATFORM/TABLE/LABEL-DEVICES.json,
and are used again as long as the program is the same before compilation, letter
by letter, and so are compilers and device: an interrupted command goes on, two
methods with one round compile it once, and a change of the code compiles what
it changed.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from configs import common
from experiments.accelerators.compilation import (
  Record,
  compile_program,
  lowered_programs,
  plan_for,
  stated,
)
from experiments.accelerators.targets import PLATFORMS, Where
from experiments.benchmarks.screen import number
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.atomic_files import write_json
from fedjax_pfl.core.target import launches_kernels
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.report.text_table import markdown
from fedjax_pfl.runs.identity import provenance
from fedjax_pfl.training.program import CPU_BLOCK

FOLDER = Path(__file__).parents[2] / 'results' / 'accelerators'
PAGE = FOLDER.parents[1] / 'docs' / 'dev' / 'accelerators.md'
INTRODUCTION = Path(__file__).with_name('page.md')
TITLES = {
  'models': 'Models: a round on one device',
  'methods': 'Methods: rounds and evaluation on one device',
}
FAILED = 'does not compile'

Records = Mapping[str, Sequence[Record]]  # by the name of the row
# The models of papers' tables, each with a config of its paper and its batch.
CONFIGS = {
  'convnet3': ('fedbabu_emnist', 50),
  'convnet4': ('fedbabu_cifar10', 50),
  'fedavg_cnn': ('fedbabu_cifar10:fedavg', 10),
  'mobilenet': ('fedbabu_cifar100', 50),
  'resnet10': ('fedbabu_cifar100:fedavg', 50),
  'resnet18': ('fedbabu_cifar100', 50),
  'resnet50': ('fedbabu_cifar100', 50),
  'simple_cnn': ('fedbabu_cifar10:fedavg', 64),
  'superfed_cnn': ('fedbabu_cifar10:fedavg', 20),
  'vgg9': ('fedbabu_cifar10:fedavg', 64),
}
MESH = 4  # devices
MESH_MODELS = ('convnet4', 'mobilenet', 'simple_cnn')
COHORT = 8  # of the methods' rounds


class Row(NamedTuple):
  """A model or a method on some devices."""

  table: str
  label: str
  devices: int

  @property
  def name(self) -> str:
    return f'{self.table}/{self.label}-{self.devices}'


def all_rows() -> list[Row]:
  """Return all models and methods on one device, then those on the mesh."""
  known = [('models', label) for label in CONFIGS]
  known += [('methods', label) for label in available()]
  on_mesh = [
    one for one in known if one[0] == 'methods' or one[1] in MESH_MODELS
  ]
  return [Row(*one, 1) for one in known] + [Row(*one, MESH) for one in on_mesh]


def config_of(row: Row, platform: str) -> dict[str, Any]:
  """Return the config of a row."""
  if row.table == 'methods':
    config = common.load(f'digits:{row.label}')
    config.client_fraction = max(config.client_fraction, COHORT / 20)
  else:
    name, batch_size = CONFIGS[row.label]
    config = common.load(name)
    config.model, config.batch_size = row.label, batch_size
  cohort = cohort_size(config.num_clients, config.client_fraction)
  # As many as 'auto' evaluates.
  launches = launches_kernels(PLATFORMS[platform]['kind'])
  chunk = max(cohort, CPU_BLOCK) if launches else 1
  return {**config.to_dict(), 'clients_per_chunk': chunk}


# ---- records


def compile_row(
  where: Where, row: Row, known: dict[str, Record]
) -> tuple[list[Record], int]:
  """Return the records of a row's programs, and how many were compiled.

  `known` are all records by key; new ones are added.
  """
  plan = plan_for(where, config_of(row, where.platform))
  rounds_only = row.table == 'models' or row.devices > 1
  records, before = [], len(known)
  for program, lowered in lowered_programs(where, plan):
    if rounds_only and program.kind != 'round':
      continue
    key = _key_of(lowered.as_text(), where)
    if key not in known:
      commit = provenance()['commit'] or 'unknown'
      known[key] = {
        'key': key,
        'commit': commit[:7] + commit[40:],  # -dirty, if the code is edited
        'compilers': versions(where.platform),
        'device': where.device.name,
        **compile_program(program, lowered, where, plan),
      }
    # Another stage, perhaps another method, may have had this program.
    records.append({**known[key], **stated(program)})
  return records, len(known) - before


def versions(platform: str) -> str:
  """Return the compilers, as 'jax 0.10.2, libtpu 0.0.42.1'."""
  first, *_ = PLATFORMS[platform]['packages']
  return f'jax {jax.__version__}, {first} {importlib.metadata.version(first)}'


def _key_of(lowered: str, where: Where) -> str:
  """Return the name of a program: its text, the compiler, the device."""
  parts = (lowered, where.device.name, *where[1:], versions(where.platform))
  digest = hashlib.sha256('\n'.join(map(str, parts)).encode())
  return digest.hexdigest()[:16]


def read(platform: str, folder: Path = FOLDER) -> dict[str, list[Record]]:
  """Return {name of a row: its records} of a platform."""
  home = folder / platform
  return {
    path.relative_to(home).with_suffix('').as_posix(): json.loads(
      path.read_text()
    )
    for path in sorted(home.glob('*/*.json'))
  }


def write(
  platform: str, row: Row, records: list[Record], folder: Path = FOLDER
) -> None:
  """Replace the records of a row."""
  path = folder / platform / f'{row.name}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  write_json(path, records)


# ---- the page


def as_markdown(stored: Mapping[str, Records]) -> str:
  """Return the page: {platform: records}."""
  parts = [INTRODUCTION.read_text(encoding='utf-8').rstrip()]
  for records in filter(None, stored.values()):
    everything = [one for own in records.values() for one in own]
    compilers = '; '.join(sorted({one['compilers'] for one in everything}))
    remarks = [
      f'- {name.partition("/")[2].rpartition("-")[0]}, {one["program"]}: '
      f'{one["error"]}'
      for name, programs in records.items()
      for one in programs
      if one['error']
    ]
    device = everything[0]['device']
    parts += [f'## {device}', f'{compilers}.', *_tables(records)]
    parts += ['\n'.join(remarks)] * bool(remarks)
  return '\n\n'.join(parts) + '\n'


def _tables(records: Records) -> Iterator[str]:
  """Yield all tables of a platform that have rows, with their titles."""
  sizes = {name.rpartition('-')[2] for name in records} - {'1'}
  parts = [(title, [table], '1') for table, title in TITLES.items()]
  parts += [
    (f'On a mesh of {size}', [*TITLES], size) for size in sorted(sizes, key=int)
  ]
  for title, tables, size in parts:
    rows = [row for table in tables for row in _rows(records, table, size)]
    if rows:  # without the columns that are empty
      heads = [head for head in rows[0] if any(row[head] for row in rows)]
      cells = [[row[head] for head in heads] for row in rows]
      yield f'### {title}\n\n{markdown(heads, cells)}'


def _rows(
  records: Records, table: str, devices: str
) -> Iterator[dict[str, str]]:
  """Yield the cells of every round of a table, by the head of the column."""
  for name, programs in records.items():
    kind, _, rest = name.partition('/')
    label, _, size = rest.rpartition('-')
    if (kind, size) != (table, devices):
      continue
    rounds = [one for one in programs if one['program'] == 'round']
    if table == 'models' and size == '1':
      label = f'{label}, `{CONFIGS[label][0]}`'
    for one in rounds:
      stage = '' if len(rounds) == 1 else f', {one["stage"]}'
      same = [other for other in programs if other['stage'] == one['stage']]
      own = {other['program']: other for other in same}
      yield {'': f'{label}{stage}', **_cells(own)}


def _cells(own: Mapping[str, Record]) -> dict[str, str]:
  """Return the cells of a stage: {kind of program: its record}."""
  one, begin, evaluation = map(own.get, ('round', 'begin', 'evaluation'))
  chunk = one['clients_per_chunk']
  costs, mark = one.get('costs'), ''
  if not costs and one.get('step'):  # of before 24 November 2026
    costs, mark = one['step'], ' †'
  tested = begins = ''
  if evaluation:
    tested = _mib(evaluation, 'temporary') or FAILED
  if begin:
    begins = 'compiles' if begin['compiles'] else FAILED
  return {
    'batch': f'{one["images_per_step"] // max(chunk, 1):.0f}',
    'side by side': str(chunk),
    'GFLOP': number(costs['flops'] / 1e9) + mark if costs else '',
    'MB': number(costs['bytes'] / 1e6) + mark if costs else '',
    'arguments MiB': _mib(one, 'arguments') or FAILED,
    'temporary MiB': _mib(one, 'temporary'),
    'evaluation: temporary MiB': tested,
    'beginning': begins,
    'compiled at': one['commit'],
  }


def _mib(one: dict[str, Any], part: str) -> str:
  memory = one['memory']
  return '' if memory is None else f'{memory[part] / 2**20:,.1f}'
