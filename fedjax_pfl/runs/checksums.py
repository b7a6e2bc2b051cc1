"""Digests by which a run notices that its files are not those it wrote."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input

DIGESTS = 'sha256'  # in result.json: of the rest of it, and of clients.npz


def check_metrics(
  path: pathlib.Path,
  checksum: Mapping[str, Any],
  step: int,
  log: Callable[[str], None],
) -> None:
  """Refuse metrics that are not those with which a checkpoint was saved.

  To go on without them, a user deletes the file: that is only told.
  """
  if not checksum:  # of an earlier version
    return
  if not path.exists():
    log(f'{path} is gone: going on without what it said.')
    return
  head = path.read_bytes()[: checksum['bytes']]
  if hashlib.sha256(head).hexdigest() != checksum['sha256']:
    raise bad_input(
      'metrics',
      got=f'{path}, which was changed or cut short before round {step}',
      expected='the lines that were there when that round was saved',
      choices=[
        'put back a copy of it',
        'delete it, to go on without what it said',
      ],
      cause='a full disk, a damaged one, or a file edited by hand',
    )


def with_checksums(
  result: Mapping[str, Any], clients: pathlib.Path
) -> dict[str, Any]:
  """Return what result.json shall hold, with digests of it and of the file."""
  result = atomic_files.plain(result)
  digests = {
    'rest': _digest(result),
    clients.name: atomic_files.sha256(clients),
  }
  return {**result, DIGESTS: digests}


def checksum_of(path: pathlib.Path) -> dict[str, Any]:
  """Return the length and the digest of a file; {} if there is none."""
  if not path.exists():
    return {}
  content = path.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  return {'bytes': len(content), 'sha256': digest}


def _digest(result: Mapping[str, Any]) -> str:
  text = json.dumps(result, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()


def read_result(
  path: pathlib.Path, clients: str
) -> tuple[dict[str, Any], dict[str, str]]:
  """Return result.json and the digests in it; a ValueError if it is damaged.

  Earlier versions wrote none.
  """
  result = json.loads(path.read_bytes())
  if not isinstance(result, dict):
    raise ValueError('no object')
  digests = result.pop(DIGESTS, None)
  renamed = [v for v in result.values() if isinstance(v, dict) and clients in v]
  if digests is None and not renamed:
    return result, {}
  wanted = digests if isinstance(digests, dict) else {}
  if wanted.get('rest') != _digest(result) or clients not in wanted:
    raise ValueError('not as it was written')
  return result, wanted
