"""What compilers said, by the program that they were given.

  results/accelerators/PLATFORM/TABLE/LABEL-DEVICES.json

A record is used again as long as the program is the same before compilation,
letter by letter, and so are compilers, device and the way of counting: an
interrupted command goes on, two methods with one round compile it once, and a
change of the code compiles what it changed.
"""

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import jax

from experiments.accelerators import hlo_costs
from experiments.accelerators.compilation import Compiled
from experiments.accelerators.programs import Program
from experiments.accelerators.report import Where
from experiments.accelerators.rows import Row
from experiments.accelerators.targets import DISTRIBUTIONS
from fedjax_pfl.core.atomic_files import write_json
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.runs.provenance import provenance

Record = dict[str, Any]


def versions(platform: str) -> str:
  """Return the compilers, as 'jax 0.10.2, libtpu 0.0.42.1'."""
  first, *_ = DISTRIBUTIONS[platform]
  return f'jax {jax.__version__}, {first} {importlib.metadata.version(first)}'


def key_of(program: Program, lowered: str, where: Where) -> str:
  """Return the name of a program: text, loops, device, counting."""
  parts = (
    *(lowered, repr(program.lengths), repr(program.images)),
    *(where.device.name, where.topology, where.devices),
    *(versions(where.platform), f'counting {hlo_costs.VERSION}'),
  )
  digest = hashlib.sha256('\n'.join(map(str, parts)).encode())
  return digest.hexdigest()[:16]


def read(folder: Path, platform: str) -> dict[str, list[Record]]:
  """Return {name of a row: its records} of a platform."""
  home = folder / platform
  return {
    path.relative_to(home).with_suffix('').as_posix(): json.loads(
      path.read_text()
    )
    for path in sorted(home.glob('*/*.json'))
  }


def check_device(folder: Path, platform: str, device: str) -> None:
  """Refuse a device other than that of the stored rows of its platform."""
  stored = read(folder, platform)
  known = sorted({one['device'] for own in stored.values() for one in own})
  if known and known != [device]:
    raise bad_input(
      'topology',
      got=device,
      expected=f'the device of the rows that are stored, {", ".join(known)}',
      choices=['compile_for.py --topology=.., which stores nothing'],
      cause='another topology: its rows would replace those of the table',
    )


def write(folder: Path, platform: str, row: Row, records: list[Record]) -> None:
  """Replace the records of a row."""
  path = folder / platform / f'{row.name}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  write_json(path, records)


def record_of(compiled: Compiled, key: str, platform: str) -> Record:
  """Return what is stored of a program that was compiled."""
  commit = provenance()['commit'] or 'unknown'
  record = compiled.as_json()
  record.pop('run_seconds', None)  # of this row's rounds alone
  return {
    'key': key,
    'commit': commit[:7] + commit[40:],  # with -dirty, if the code is edited
    'compilers': versions(platform),
    'device': compiled.device.name,
    'counting': hlo_costs.VERSION,
    **record,
  }
