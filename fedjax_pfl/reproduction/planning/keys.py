"""What makes two trainings the same, and two ways of evaluation.

A key is a hash of the fields that differ from the defaults of the configs, so
a field that is added later, with a default that changes nothing, leaves the
keys of older results as they are.

  training_key   the config without what cannot change what is trained, and the
                 fingerprint of the data; rounds as a number; for a run that
                 begins with the model of another, the key of that one
  evaluation_key    what a client adapts on and how, its tests, their scoring

Views are in neither: they are what is looked up below two keys. What is
watched during the rounds (eval_every, eval_views, eval_global_model) is part of
the training, because best and last rounds cannot be evaluated afterwards. Tests
are in both keys: a run's own belong to its data, and others can be evaluated
later.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from fedjax_pfl.analysis.open_runs import with_defaults
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings.validate import num_rounds
from fedjax_pfl.training.warm_start import model_digest

# How it is computed, logged and kept: the same numbers up to rounding.
HOW = (
  *('clients_per_chunk', 'conv_impl', 'debug', 'log_every', 'checkpoint_every'),
  *('clients_placement', 'devices', 'save_clients', 'data_dir'),
)
EVALUATION_FIELDS = ('adapt_on', 'scoring')
TESTS = ('test_partition', 'test_shards_per_client', 'test_fraction')
# `quick` lets other images stand in, and their fingerprint tells of it.
NOT_TRAINED = (
  *HOW,
  *EVALUATION_FIELDS,
  'views',
  'quick',
  'init_from',
  'total_epochs',
)
FINETUNE = 'finetune.'

Settings = Mapping[str, Any]


def training_key(
  settings: Settings, data: str, *, defaults: Settings, start_key: str = ''
) -> str:
  """Return the key of what is trained, 16 hexadecimal digits.

  >>> training_key(settings, data_id, defaults=common.base().to_dict())

  `settings` may be a config or what config.json holds of one; `data` the
  fingerprint, of which a model to start from (after a +) is left out.
  """
  filled = with_defaults(settings, defaults)
  fields = {
    name: value
    for name, value in differing(filled, defaults).items()
    if name not in NOT_TRAINED and not name.startswith(FINETUNE)
  }
  fields['rounds'] = _rounds(filled)
  return _hash([fields, data.partition('+')[0], start_key])


def evaluation_key(settings: Settings, *, defaults: Settings) -> str:
  """Return the key of how models are evaluated, 16 hexadecimal digits."""
  fields = {
    name: value
    for name, value in differing(with_defaults(settings, defaults), defaults).items()
    if name in (*EVALUATION_FIELDS, *TESTS) or name.startswith(FINETUNE)
  }
  return _hash(fields)


def run_key(
  workdir: str | os.PathLike,
  *,
  defaults: Settings,
  known: Mapping[str, str] | None = None,
) -> str:
  """Return the training key of a run directory; see `start_key`."""
  stored = load_config(workdir)
  start = start_key(workdir, defaults=defaults, known=known)
  return training_key(
    stored['config'], stored['data'], defaults=defaults, start_key=start
  )


def start_key(
  workdir: str | os.PathLike,
  *,
  defaults: Settings,
  known: Mapping[str, str] | None = None,
) -> str:
  """Return the training key of the run that this one began with, or ''.

  The fingerprint of the data ends with the digest of that model. The run is
  the one at `start`, if its model still has this digest, or one that is
  `known` ({digest of the final model: training key}), or lies beside this one.
  """
  stored, path = load_config(workdir), pathlib.Path(workdir)
  digest = stored['data'].partition('+')[2]
  if not digest:
    return ''
  named = pathlib.Path(stored['config'].get('init_from', ''))
  known = known or {}
  if _made(named, digest):
    return run_key(named, defaults=defaults, known=known)
  if digest in known:
    return known[digest]
  for beside in sorted(path.resolve().parent.iterdir()):
    if _made(beside, digest):
      return run_key(beside, defaults=defaults, known=known)
  raise bad_input(
    'init_from',
    got=f'{path}, which began with the final model of {named}',
    expected='that run, where it was or beside this one: it is a part of what '
    'was trained',
    cause='it was moved, trained again, or not copied with this one',
  )


def load_config(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return config.json of a run; refuse one that does not hold a run."""
  stored = run_dir.load_config(workdir)
  fields = stored if isinstance(stored, Mapping) else {}
  if isinstance(fields.get('config'), Mapping) and 'data' in fields:
    return stored
  raise bad_input(
    'run',
    got=str(workdir),
    expected='a run directory whose config.json holds a config and the '
    'fingerprint of its data',
    cause='a config.json of another program',
  )


def differing(settings: Settings, defaults: Settings) -> dict[str, Any]:
  """Return the fields that are not as in the defaults: {'hp.mu': 0.1}."""
  usual = flat(defaults)
  return {
    name: value
    for name, value in flat(settings).items()
    if name not in usual or value != usual[name]
  }


def flat(settings: Settings) -> dict[str, Any]:
  """Return {'hp.mu': 0.1} with plain values; an empty `hp` has no name."""
  return {
    name: plain(value)
    for name, value in flatten(settings).items()
    if value != {}
  }


def plain(value: Any) -> Any:
  """Return a setting as JSON gives it back; a whole number as an int."""
  value = atomic_files.plain(value, nonfinite=str)
  if isinstance(value, list):
    return [plain(item) for item in value]
  is_whole = isinstance(value, float) and value.is_integer()
  return int(value) if is_whole else value


def digest(defaults: Settings) -> str:
  """Return the digest of the defaults: others make other keys."""
  return _hash(
    {name: plain(value) for name, value in flatten(defaults).items()}
  )


def _made(workdir: pathlib.Path, digest: str) -> bool:
  """Return whether this run trained the model, and did not begin with it."""
  if model_digest(workdir) != digest:
    return False
  # A run of no rounds, that only evaluates, ends with the model it began with.
  return load_config(workdir)['data'].partition('+')[2] != digest


def _rounds(settings: Settings) -> int:
  try:
    return int(num_rounds(settings))
  except (TypeError, ValueError, ZeroDivisionError) as error:
    names = ('rounds', 'total_epochs', 'local_epochs')
    raise bad_input(
      'config',
      got={name: settings.get(name) for name in names},
      expected='whole numbers of rounds and epochs',
      cause='a config.json that was edited by hand',
    ) from error


def _hash(value: Any) -> str:
  text = json.dumps(value, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()[:16]
