"""result.json and the scores beside it: whole, or refused with a sentence.

The result has checksums, of the rest of itself and of clients.npz. They find
damage; a file from elsewhere may have any content with the checksums that
belong to it, so that the form on which readers rely is checked, too.
"""

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input, may_read

RESULT = 'result.json'
CLIENTS = 'clients.npz'
MAX_CHOICES = 20  # run directories that a message names
DIGESTS = 'sha256'  # in result.json: of the rest of it, and of clients.npz
FORM = {
  'algorithm': str,
  'dataset': str,
  'rounds': int,
  'seconds': int | float,
  'views': dict,
}
CHOICES = ('last', 'validation')  # of a run that keeps examples for choosing


def with_checksums(result: Mapping[str, Any], folder: Path) -> dict[str, Any]:
  """Return the content of result.json: the result with checksums."""
  result = atomic_files.plain(result)
  scores = atomic_files.sha256(folder / CLIENTS)
  return {**result, DIGESTS: {'rest': digest(result), CLIENTS: scores}}


def parse(content: bytes) -> tuple[dict[str, Any], dict[str, str]]:
  """Return the result and its checksums; a ValueError if it is damaged."""
  result = atomic_files.parse_object(content)
  digests = result.pop(DIGESTS, None)
  is_whole = isinstance(digests, dict) and CLIENTS in digests
  if not is_whole or digests.get('rest') != digest(result):
    raise ValueError('not as it was written')
  _check_form(result)  # anyone can write checksums
  return result, digests


def digest(value: Any) -> str:
  """Return the SHA-256 of a value as compact JSON, its keys sorted."""
  text = json.dumps(value, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()


def read(workdir: str | os.PathLike) -> tuple[dict[str, Any], dict[str, str]]:
  """Return result.json of a run and its checksums; refuse a damaged one."""
  return load_json(existing(workdir, RESULT), parse)


def check_clients(workdir: str | os.PathLike) -> None:
  """Refuse a finished run whose clients.npz is not as the run wrote it."""
  path = Path(workdir)
  digests = read(workdir)[1]
  if atomic_files.sha256(path / CLIENTS) == digests[CLIENTS]:
    return
  raise bad_input(
    'file',
    got=f'{path / CLIENTS}, which is missing or not as the run wrote it',
    expected=f'the file with the checksum in {RESULT}',
    choices=[
      'put back a copy of it',
      f'delete {RESULT} of this run: the same command ends it again, from its '
      'last checkpoint if that is there',
    ],
  )


def existing(workdir: str | os.PathLike, name: str) -> Path:
  """Return the path of a file of a run; refuse a directory without it."""
  path = Path(workdir) / name
  with may_read('run'):
    if path.is_file():
      return path
  # Run directories beside this one: a sweep has hundreds.
  beside = [str(file.parent) for file in path.parent.parent.glob(f'*/{name}')]
  meant = str(path.parent)
  near = difflib.get_close_matches(meant, beside, n=MAX_CHOICES, cutoff=0)
  raise bad_input(
    'run',
    got=str(workdir),
    expected=f'a run directory that holds {name}',
    choices=sorted(near),
  )


def load_json(
  path: Path, parse_fn: Callable[[bytes], Any] = atomic_files.parse_object
) -> Any:
  """Return the content of a JSON file; refuse one that is damaged."""
  try:
    with may_read('run'):
      return parse_fn(atomic_files.read_bytes(path))
  except BadInput:
    raise
  except ValueError as error:
    raise bad_input(
      'file',
      got=f'{path}: {error}',
      expected='valid JSON, as it was written',
    ) from error


def _check_form(result: Mapping[str, Any]) -> None:
  """Raise ValueError where a part that a reader uses is missing or another."""
  for name, kind in FORM.items():
    _expect(isinstance(result.get(name), kind), name)
  try:
    _check_parts(result)
  except (LookupError, TypeError, AttributeError) as error:
    reason = f'a part is missing or of another kind: {error}'
    raise ValueError(reason) from error


def _check_parts(result: Mapping[str, Any]) -> None:
  groups = [result['views'], result.get('unseen', {})]
  groups += (result.get('test_best') or {}).values()
  for summaries in groups:
    for name, summary in summaries.items():
      _check_summary(name, summary)
  server = dict(result.get('global') or {})
  _check_summary('global', server.pop('last10', {}))
  _check_summary('global', server)
  for best in (result.get('test_best_view') or {}).values():
    _expect(not best or isinstance(best['together']['view'], str), 'view')
  if {'select', *CHOICES} & {*result}:
    _check_choice(result)


def _check_choice(result: Mapping[str, Any]) -> None:
  for name in CHOICES:
    chosen = result[name]
    summary = chosen['views'][chosen['view']]
    _check_summary(name, summary)
    _expect(_has_spread(summary) and isinstance(chosen['round'], int), name)
  _, mean = value_of_choice(result['validation'])
  _expect(isinstance(mean, int | float | None), 'validation_accuracy')
  _expect(result[result['select']]['view'] in result['views'], 'select')
  for best in result['test_best'].values():
    if 'together' in best:
      _expect(_has_spread(best['together']), 'together')


def value_of_choice(chosen: Mapping[str, Any]) -> tuple[str, float]:
  """Return by which measure validation chose a round, and its value."""
  (name,) = (name for name in chosen if name.startswith('validation_'))
  return name.removeprefix('validation_'), chosen[name]


def _has_spread(summary: Mapping[str, Any]) -> bool:
  return summary['mean'] is None or summary['std'] is not None


def _check_summary(name: str, summary: Mapping[str, Any]) -> None:
  """Expect numbers by their names; the interval is two of them."""
  ends = summary.get('interval') or [None, None]
  numbers = [n for key, n in summary.items() if key != 'interval']
  _expect(isinstance(ends, list) and len(ends) == 2, name)
  are_numbers = all(isinstance(n, int | float | None) for n in numbers + ends)
  _expect(are_numbers, name)


def _expect(is_so: bool, name: str) -> None:
  if not is_so:
    raise ValueError(f'{name} is not as a run writes it')
