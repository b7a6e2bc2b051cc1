"""The identity of a run: a directory is of one config and one data set."""

import json
import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.runs import lock
from fedjax_pfl.runs.provenance import provenance

CONFIG = 'config.json'
ABSENT = '(absent)'


def open_directory(
  path: pathlib.Path,
  config: Mapping[str, Any],
  data: str,
  log: Callable[[str], None],
  resumable: Collection[str] = (),
  defaults: Mapping[str, Any] | None = None,
  num_devices: int | None = None,
) -> None:
  """Make `path` the directory of this run, or check that it already is.

  Fields of the config that are `resumable` may differ from those with which
  the run was started. A field that is not in its config.json is younger than
  the run, which was computed as its value in `defaults` says.

  Raises, before anything is written, where the directory has another run or
  other files, or another process writes it: the lock is held until
  `lock.release`.
  """
  now = {'config': _plain_config(config), 'data': data, **provenance()}
  if num_devices is not None:
    now['num_devices'] = num_devices

  def is_started(log: Callable[[str], None]) -> bool:
    """Return whether the run was started there; refuse another one."""
    stored = _read(path)
    if stored is None:
      return False
    if not os.access(path, os.W_OK | os.X_OK):
      raise PermissionError('not allowed to write here')
    config = _completed(stored['config'], now['config'], defaults or {})
    _compare(path, {**stored, 'config': config}, now, log, resumable)
    return True

  try:
    path.mkdir(parents=True, exist_ok=True)
    is_started(lambda text: None)  # nothing is written yet
    lock.acquire(path)
    try:
      if not is_started(log):
        atomic_files.remove_temporary(path)
        atomic_files.write_json(path / CONFIG, now)
    except BaseException:
      lock.release(path)
      raise
  except BadInput:
    raise
  except (OSError, ValueError) as error:  # ValueError: a name with a null byte
    reason = getattr(error, 'strerror', None) or error
    raise bad_input(
      'workdir',
      got=str(path),
      expected='a directory that can be created and written',
      choices=['another --workdir'],
      cause=f'{reason}'.lower(),
    ) from error


def flatten(config: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Return {'hp.lr': 0.1} for {'hp': {'lr': 0.1}}."""
  flat = {}
  for key, value in config.items():
    name = f'{prefix}{key}'
    if isinstance(value, Mapping) and value:
      flat |= flatten(value, f'{name}.')
    else:
      flat[name] = value
  return flat


def _completed(
  stored: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping
) -> dict[str, Any]:
  """Return the stored config with the defaults of younger fields.

  Those of a record inside it (finetune), too.
  """
  completed = dict(stored)
  for name in given.keys() & {*defaults}:
    values = [config.get(name) for config in (stored, given, defaults)]
    if name not in stored:
      completed |= _plain_config({name: defaults[name]})
    elif all(isinstance(value, Mapping) for value in values):
      completed[name] = _completed(*values)
  return completed


def _plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
  """Return the config as config.json will give it back."""
  for name, value in flatten(config).items():
    try:
      atomic_files.plain(value)
    except TypeError as error:
      raise bad_input(
        f'config.{name}',
        got=value,
        expected='a setting that JSON can hold',
        choices=['number', 'string', 'bool', 'None', 'list', 'dict'],
        cause='an object was put into the config instead of its name',
      ) from error
  # An infinite setting (never, no limit) is valid, and must compare equal.
  return atomic_files.plain(config, nonfinite=str)


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  """Return the stored config.json; None where a run may start."""
  names = [entry.name for entry in path.iterdir()]
  others = sorted(
    name
    for name in names
    if name not in (CONFIG, lock.NAME) and not atomic_files.is_temporary(name)
  )
  if CONFIG in names:
    try:
      stored = json.loads((path / CONFIG).read_bytes())
      return {**stored, 'config': {**stored['config']}, 'data': stored['data']}
    except (ValueError, TypeError, KeyError) as error:
      if not others:  # nothing was computed yet
        return None
      raise bad_input(
        'workdir',
        got=f'{path}, whose {CONFIG} is damaged',
        expected=f'a run with a readable {CONFIG}',
        choices=[
          'put back a copy of that file',
          'another --workdir',
          'delete the directory to start anew',
        ],
        cause='a full disk, or a file edited by hand',
      ) from error
  if others:
    more = ', ...' if len(others) > 3 else ''
    raise bad_input(
      'workdir',
      got=f'{path}, which holds {", ".join(others[:3])}{more}',
      expected=f'an empty or new directory, or a run with its {CONFIG}',
      choices=['another --workdir'],
      cause='the path of something else, or of the folder above the run',
    )
  return None


def _compare(
  path: pathlib.Path,
  stored: dict,
  now: dict,
  log: Callable[[str], None],
  resumable: Collection[str],
) -> None:
  """Raise unless both are the same run; log other differences."""
  before, given = flatten(stored['config']), flatten(now['config'])
  may_differ = [
    {name: flat.pop(name) for name in resumable if name in flat}
    for flat in (before, given)
  ]
  if before != given:
    raise _other_config(path, before, given)
  if stored['data'] != now['data']:
    raise bad_input(
      'data',
      got=now['data'],
      expected=f'{stored["data"]}, with which {path} was started',
      choices=['another --workdir', 'the data of that run'],
      cause='the files of the data set, how they are read, or the model of '
      'the run to start from (after a +) have changed',
    )
  # The devices that there are, and the field of that name, are two things.
  for old, new in ((stored, now), may_differ):
    for name in new:
      if name != 'config' and old.get(name) != new[name]:
        log(
          f'{path} was started with {name} {old.get(name)}, this is '
          f'{new[name]}: if numbers differ, then in their last digits.'
        )


def _other_config(path: pathlib.Path, stored: dict, given: dict) -> BadInput:
  pairs = {
    name: (stored.get(name, ABSENT), given.get(name, ABSENT))
    for name in {**stored, **given}
  }
  pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
  before = {name: pair[0] for name, pair in pairs.items()}
  is_own_code = all(_code(old) == _code(new) for old, new in pairs.values())
  return bad_input(
    'config',
    got={name: pair[1] for name, pair in pairs.items()},
    expected=f'the config of {path}, where these are {before}',
    choices=['another --workdir', 'the settings of that run'],
    cause='a file of your own code was changed: with it, it is another run; '
    'put the file back to continue this one'
    if is_own_code
    else 'a setting was changed and the directory was not',
  )


def _code(value: Any) -> list[Any]:
  """Return the names of code, whatever its files hold."""
  values = value if isinstance(value, list) else [value]
  return [without_digest(name) for name in values]
