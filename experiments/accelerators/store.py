"""Rows of the tables: compiled, or found as they were stored.

  results/accelerators/PLATFORM/TABLE/LABEL-DEVICES.json

A record is used again as long as the program is the same before compilation,
letter by letter, and so are compilers and device: an interrupted command goes
on, two methods with one round compile it once, and a change of the code
compiles what it changed.
"""

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import jax

from experiments.accelerators.compilation import (
  compile_program,
  traced_programs,
)
from experiments.accelerators.report import plan_for
from experiments.accelerators.rows import Row, config_of
from experiments.accelerators.targets import DISTRIBUTIONS, Where
from fedjax_pfl.core.atomic_files import write_json
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.runs.provenance import provenance

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'results' / 'accelerators'

Record = dict[str, Any]


def compile_row(
  where: Where, row: Row, known: dict[str, Record]
) -> tuple[list[Record], int]:
  """Return the records of a row's programs, and how many were compiled.

  `known` are all records by key; new ones are added.
  """
  plan = plan_for(where, config_of(row, where.platform))
  records, compiled = [], 0
  for program, traced in traced_programs(where, plan):
    if program.kind not in row.kinds:
      continue
    key = key_of(traced.lower().as_text(), where)
    if key not in known:
      precision = plan.settings.model.precision
      found = compile_program(program, traced, where.device, precision)
      commit = provenance()['commit'] or 'unknown'
      known[key] = {
        'key': key,
        'commit': commit[:7] + commit[40:],  # -dirty, if the code is edited
        'compilers': versions(where.platform),
        'device': where.device.name,
        **found.as_json(),
      }
      compiled += 1
    # Another stage, perhaps another method, may have had this program.
    own = {'stage': program.stage, 'calls': program.calls}
    own |= {'clients_per_chunk': program.chunk}
    own |= {'images_per_step': program.images}
    records.append({**known[key], **own})
  return records, compiled


def versions(platform: str) -> str:
  """Return the compilers, as 'jax 0.10.2, libtpu 0.0.42.1'."""
  first, *_ = DISTRIBUTIONS[platform]
  return f'jax {jax.__version__}, {first} {importlib.metadata.version(first)}'


def key_of(lowered: str, where: Where) -> str:
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


def check_device(platform: str, device: str, folder: Path = FOLDER) -> None:
  """Refuse a device other than that of the stored rows of its platform."""
  stored = read(platform, folder)
  known = sorted({one['device'] for own in stored.values() for one in own})
  if known and known != [device]:
    raise bad_input(
      'topology',
      got=device,
      expected=f'the device of the rows that are stored, {", ".join(known)}',
      choices=['compile_for.py --topology=.., which stores nothing'],
      cause='another topology: its rows would replace those of the table',
    )


def write(
  platform: str, row: Row, records: list[Record], folder: Path = FOLDER
) -> None:
  """Replace the records of a row."""
  path = folder / platform / f'{row.name}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  write_json(path, records)
