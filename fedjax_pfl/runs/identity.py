"""The identity of a run: a directory is of one config and one data set.

And its provenance: versions, commit, devices, processor.
"""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
from flax.traverse_util import flatten_dict

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.machine import num_cores
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.runs import lock

CONFIG = 'config.json'
FORM = {'config': dict, 'data': str, 'commit': str | None}
ABSENT = '(absent)'
Log = Callable[[str], None]
flatten = partial(flatten_dict, sep='.')  # {'hp': {'lr': 1}} is {'hp.lr': 1}


def identify(
  config: Mapping[str, Any], data: str, num_devices: int | None = None
) -> dict[str, Any]:
  """Return the content of config.json: the run, and where it is computed."""
  now = {'config': _plain_config(config), 'data': data, **provenance()}
  return now if num_devices is None else {**now, 'num_devices': num_devices}


def is_started(
  path: Path,
  now: Mapping[str, Any],
  resumable: Collection[str],
  defaults: Mapping[str, Any],
  log: Log,
) -> bool:
  """Return whether the run was started in this directory; refuse another one.

  Fields of the config that are `resumable` may differ from those with which
  the run was started. A field that is not in its config.json is younger than
  the run, which was computed as its value in `defaults` says. Raises where the
  directory has another run or other files.
  """
  stored = _read(path)
  if stored is None:
    return False
  if not os.access(path, os.W_OK | os.X_OK):
    raise PermissionError('not allowed to write here')
  configs = stored['config'], now['config'], _plain_config(defaults)
  before, given, younger = map(flatten, configs)
  absent = [name for name in given if name not in before and name in younger]
  before |= {name: younger[name] for name in absent}
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
      # Of another folder's data the fingerprint was compared.
      if name not in ('config', 'data_dir') and old.get(name) != new[name]:
        effect = 'if numbers differ, then in their last digits'
        if name in ('version', 'commit'):
          effect = 'what moved numbers is in CHANGELOG.md'
        log(
          f'{path} was started with {name} {old.get(name)}, this is '
          f'{new[name]}: {effect}.'
        )
  return True


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
      ) from error
  # An infinite setting (never, no limit) is valid, and must compare equal.
  return atomic_files.plain(config, nonfinite=str)


def parse(content: bytes) -> dict[str, Any]:
  """Return the content of config.json; a ValueError if it holds no run."""
  stored = atomic_files.parse_object(content)
  for name, kind in FORM.items():
    if not isinstance(stored.get(name), kind):
      raise ValueError(f'{name} is {stored.get(name)!r}, as in no run')
  if not isinstance(hp := stored['config'].get('hp', {}), dict):
    raise ValueError(f'config.hp is {hp!r}, as in no run')
  return stored


def _read(path: Path) -> dict[str, Any] | None:
  """Return the stored config.json; None where a run may start."""
  others = sorted(
    entry.name
    for entry in path.iterdir()
    if entry.name not in (CONFIG, lock.NAME)
    and not atomic_files.is_temporary(entry.name)
  )
  got, choices = ', '.join(others[:3]) + ', ...' * (len(others) > 3), []
  if (path / CONFIG).exists():
    try:
      return parse(atomic_files.read_bytes(path / CONFIG))
    except ValueError:
      got = f'a damaged {CONFIG}'
      choices = ['put back a copy of it', 'delete the directory']
  if not others:  # nothing was computed yet
    return None
  raise bad_input(
    'workdir',
    got=f'{path}, which holds {got}',
    expected=f'an empty or new directory, or a run with a readable {CONFIG}',
    choices=['another --workdir', *choices],
  )


def _other_config(path: Path, stored: dict, given: dict) -> BadInput:
  """Return the exception that names the fields which differ."""
  absent = dict.fromkeys({**stored, **given}, ABSENT)
  before, after = absent | stored, absent | given
  for name in absent:
    if before[name] == after[name]:
      del before[name], after[name]
  cause = 'a setting was changed and the directory was not'
  # Names of code, whatever its files hold.
  as_list = lambda value: value if type(value) is list else [value]
  code = lambda value: [*map(without_digest, as_list(value))]
  if all(code(before[name]) == code(after[name]) for name in before):
    cause = (
      'a file of your own code was changed: with it, it is another run; put '
      'the file back to continue this one'
    )
  return bad_input(
    'config',
    got=after,
    expected=f'the config of {path}, where these are {before}',
    choices=['another --workdir', 'the settings of that run'],
    cause=cause,
  )


# ---- provenance --------------------------------------------------------------


def provenance() -> dict[str, Any]:
  """Return the versions and devices that a number may depend on."""
  try:
    version = importlib.metadata.version('fedjax_pfl')
  except importlib.metadata.PackageNotFoundError:
    version = 'not installed'
  kinds = Counter(f'{d.platform} {d.device_kind}' for d in jax.devices())
  return {
    'version': version,
    'commit': _commit(Path(__file__).parents[2]),
    'jax': jax.__version__,
    'devices': [f'{number} x {kind}' for kind, number in kinds.items()],
    'processor': processor(),
  }


def processor() -> str:
  """Return the processor, and how many of its cores this process may use."""
  name = platform.processor() or platform.machine()
  cpuinfo = Path('/proc/cpuinfo')  # of Linux
  for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
    if line.startswith('model name'):
      name = line.partition(':')[2].strip()
      break
  return f'{name}, {num_cores()} cores'


def _commit(root: Path) -> str | None:
  """Return the commit of the checkout, `-dirty` if edited; else None.

  What was run may be written into results/ meanwhile: that is no code.
  """
  if not (root / '.git').exists():  # installed: git would find another one
    return None
  commands = 'rev-parse HEAD', 'status --porcelain -uno -- . :(exclude)results'
  run = functools.partial(
    subprocess.run, capture_output=True, text=True, timeout=10, cwd=root
  )
  try:
    commit, edited = (
      run(['git', *command.split()]).stdout.strip() for command in commands
    )
  except (OSError, subprocess.SubprocessError):  # no git, or a slow disk
    return None
  return f'{commit}-dirty' if edited else commit or None
