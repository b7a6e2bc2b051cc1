"""metrics.jsonl: a line is appended after rounds, and cut off by a resume.

A checkpoint has the length and the checksum of the file as it was then.
"""

import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input


def append(path: pathlib.Path, record: Mapping[str, Any]) -> None:
  """Append a line, which is on the disk then."""
  with atomic_files.writing(path), open(path, 'a', encoding='utf-8') as stream:
    stream.write(json.dumps(record, allow_nan=False) + '\n')
    stream.flush()
    os.fsync(stream.fileno())  # no checkpoint is newer than its metrics


def read(path: pathlib.Path) -> list[dict[str, Any]]:
  """Return the lines; a torn last line is left out."""
  lines = path.read_bytes().splitlines(keepends=True)
  return [json.loads(line) for line in lines if _round_of(line) < math.inf]


def cut(path: pathlib.Path, last: int) -> None:
  """Remove the lines after a round, and a torn last line."""
  lines = path.read_bytes().splitlines(keepends=True)
  earlier = [line for line in lines if _round_of(line) <= last]
  if earlier != lines:
    with atomic_files.writing(path):
      atomic_files.write_bytes(path, b''.join(earlier))


def _round_of(line: bytes) -> float:
  """Return the round of a line of metrics; infinity if the line is torn."""
  try:
    return json.loads(line)['round'] if line.endswith(b'\n') else math.inf
  except (ValueError, TypeError, KeyError):
    return math.inf


def checksum(path: pathlib.Path) -> dict[str, Any]:
  """Return the length and the checksum of a file; {} if there is none."""
  if not path.exists():
    return {}
  content = path.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  return {'bytes': len(content), 'sha256': digest}


def check(
  path: pathlib.Path,
  checksum: Mapping[str, Any],
  step: int,
  log: Callable[[str], None],
) -> None:
  """Refuse metrics that changed after a checkpoint was saved.

  A user who deletes the file continues without them: that is only logged.
  """
  if not checksum:  # nothing was logged before the checkpoint
    return
  if not path.exists():
    log(f'{path} is missing: continuing without the metrics before.')
    return
  head = path.read_bytes()[: checksum['bytes']]
  if hashlib.sha256(head).hexdigest() != checksum['sha256']:
    raise bad_input(
      'metrics',
      got=f'{path}, which was changed or cut short before round {step}',
      expected='the lines that were there when that round was saved',
      choices=[
        'put back a copy of it',
        'delete it, to continue without these metrics',
      ],
      cause='a full disk, a damaged one, or a file edited by hand',
    )
