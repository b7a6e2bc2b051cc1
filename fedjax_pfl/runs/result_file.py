"""Checksums by which a run recognises damage to its files."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input

DIGESTS = 'sha256'  # in result.json: of the rest of it, and of clients.npz


def with_checksums(
  result: Mapping[str, Any], clients: pathlib.Path
) -> dict[str, Any]:
  """Return the content of result.json: the result with checksums."""
  result = atomic_files.plain(result)
  digests = {
    'rest': _digest(result),
    clients.name: atomic_files.sha256(clients),
  }
  return {**result, DIGESTS: digests}


def read_result(
  path: pathlib.Path, clients: str
) -> tuple[dict[str, Any], dict[str, str]]:
  """Return result.json and its checksums; a ValueError if it is damaged."""
  result = json.loads(path.read_bytes())
  digests = result.pop(DIGESTS, None) if isinstance(result, dict) else None
  if not isinstance(digests, dict) or clients not in digests:
    raise ValueError('no checksums')
  if digests.get('rest') != _digest(result):
    raise ValueError('not as it was written')
  return result, digests


def _digest(result: Mapping[str, Any]) -> str:
  text = json.dumps(result, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()


def of_metrics(path: pathlib.Path) -> dict[str, Any]:
  """Return the length and the checksum of a file; {} if there is none."""
  if not path.exists():
    return {}
  content = path.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  return {'bytes': len(content), 'sha256': digest}


def check_metrics(
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
