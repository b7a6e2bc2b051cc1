"""Keys that identify a training, and a way to evaluate it.

A key is a hash of the fields that differ from their defaults, and from those of
the method: a field that is added later, with a default that changes nothing,
leaves the keys of older results as they are.

  training_key    the fields that change the numbers of training, the
                  fingerprint of the data, the number of rounds, and, for a run
                  that starts from the model of another, the key of that one
                  (another machine would not repeat its model bit by bit)
  evaluation_key  the fields that change the numbers of evaluation
  result_key      both, and the views: all that a run's result depends on

What is evaluated during the rounds is part of the training: best rounds cannot
be evaluated afterwards. So are, with validation_fraction, the fine-tuning and
the candidate views: they decide which round is kept. Fields of the test
partition are in both: models can be evaluated on other tests later.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.algorithms import own_defaults
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.records import EVALUATION, TRAINING
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.dealing import divide, identify, load_images
from fedjax_pfl.models.public_checkpoints import SUFFIX
from fedjax_pfl.runs import result_file, run_dir
from fedjax_pfl.settings import FIELDS, DataSettings, Settings, changing
from fedjax_pfl.settings.validate import flat_config, parse_config

# The number of rounds stands for total_epochs, the key of a run for its path.
TRAINED = {*changing(TRAINING)} - {'total_epochs', 'init_from'}
EVALUATED = {*changing(EVALUATION)}
# The fields that decide which images are read.
OF_IMAGES = (
  *('dataset', 'data_dir', 'max_train_examples', 'preprocessing'),
  *('image_size', 'imbalance_factor'),
  'test_partition',  # merged: the test images are dealt, too
  *('loss', 'label', 'client', 'split', 'group'),  # of a table
)


def training_key(settings: Settings, data: str, start_key: str = '') -> str:
  """Return the key of a training, 16 hexadecimal digits.

  `data` is the fingerprint of the data; the digest of an initial model, after
  a +, is left out of it.
  """
  fields = _differing(settings, TRAINED)
  fields['rounds'] = settings.num_rounds
  if settings.data.validation_fraction:  # it chooses a round on the way
    finetune = {name for name in FIELDS if name.startswith('finetune.')}
    fields |= _differing(settings, finetune)
    fields['candidate_views'] = settings.candidate_views
  return _hash([fields, data.partition('+')[0], start_key])


def evaluation_key(settings: Settings) -> str:
  """Return the key of a way to evaluate models, 16 hexadecimal digits."""
  return _hash(_differing(settings, EVALUATED))


def result_key(settings: Settings, data: str, start_key: str = '') -> str:
  """Return the key of a run's result, 16 hexadecimal digits."""
  training = training_key(settings, data, start_key)
  return _hash([training, evaluation_key(settings), settings.final_views])


def model_key(training: str, settings: Settings) -> str:
  """Return the key of the model of a training; `select` says of which round."""
  select = settings.evaluation.select
  return training if select == 'last' else f'{training}-{select}'


def run_key(
  workdir: str | os.PathLike,
  known: Mapping[str, str] | None = None,
  later: frozenset[str] = frozenset(),
) -> str:
  """Return the key of the model of a run directory; see `start_key`.

  Of a file it is the digest. `later` are those of the models that came of it.
  """
  if pathlib.Path(workdir).is_file():
    return run_dir.model_digest(workdir)
  stored = run_dir.load_config(workdir)
  start = start_key(workdir, known, later)
  try:
    settings = parse_config(stored['config'])
  except BadInput as error:  # a run of another version
    raise BadInput(f'{workdir}: {error}') from error
  return model_key(training_key(settings, stored['data'], start), settings)


def start_key(
  workdir: str | os.PathLike,
  known: Mapping[str, str] | None = None,
  later: frozenset[str] = frozenset(),
) -> str:
  """Return the key of the model that this run started from; '' of a fresh one.

  The fingerprint of the data ends with its digest. Its run is at `init_from`,
  if the model there still has it, or is `known` ({digest of a final model:
  key}), or is in the same folder as this one.
  """
  stored, path = run_dir.load_config(workdir), pathlib.Path(workdir)
  digest = stored['data'].partition('+')[2]
  if not digest:
    return ''
  named = pathlib.Path(str(stored['config'].get('init_from', '')))
  if named.suffix == SUFFIX:  # a file, which need not be there any more
    return digest
  known = known or {}
  if digest in later:
    raise bad_input(
      'init_from',
      got=f'{path}, which started from a model that came of it',
      expected='runs that start from earlier ones',
    )
  later |= {digest}
  if _trained(named, digest):
    return run_key(named, known, later)
  if digest in known:
    return known[digest]
  for sibling in sorted(path.resolve().parent.iterdir()):
    if _trained(sibling, digest):
      return run_key(sibling, known, later)
  raise bad_input(
    'init_from',
    got=f'{path}, which started from the final model of {named}',
    expected='that run, where it was or in the same folder as this one: it is '
    'a part of the training',
  )


def make_data_of(log: Callable[[str], None]) -> Callable[[Settings], str]:
  """Return settings -> the fingerprint of their data; images are read once."""
  read = functools.cache(functools.partial(load_images, log=log))

  @functools.cache
  def fingerprint_of(data, quick, seed):
    of_images = {name: getattr(data, name) for name in OF_IMAGES}
    dataset = read(DataSettings(**of_images), quick)
    return identify(dataset, divide(data, seed, dataset))

  return lambda settings: fingerprint_of(
    settings.data, settings.system.quick, settings.seed
  )


def flat(settings: Settings) -> dict[str, Any]:
  """Return {'hp.mu': 0.1, 'seed': 0, ..} with plain values."""
  fields = flat_config(settings)
  hp = fields.pop('hp')
  fields |= {f'hp.{name}': value for name, value in hp.items()}
  return {name: plain(value) for name, value in fields.items()}


def _differing(settings: Settings, names: set[str]) -> dict[str, Any]:
  """Return which of these fields are no defaults; of hp as {'hp.mu': 0.1}."""
  defaults = _default_fields(settings.algorithm)
  return {
    name: value
    for name, value in flat(settings).items()
    if (name if name in FIELDS else 'hp') in names
    and value != defaults.get(name, ...)
  }


@functools.cache
def _default_fields(method: str) -> dict[str, Any]:
  """Return the default of every field, and what the method fills in: 'hp.mu'.

  Those of a user's own method stay unknown: a stored run does not run its file.
  """
  hp = {} if is_code(method) else own_defaults(method)
  return flat(parse_config({})) | {f'hp.{name}': plain(hp[name]) for name in hp}


def plain(value: Any) -> Any:
  """Return a value as JSON gives it back; a whole number as an int."""
  value = atomic_files.plain(value, nonfinite=str)
  if isinstance(value, list):
    return [plain(item) for item in value]
  is_whole = isinstance(value, float) and value.is_integer()
  return int(value) if is_whole else value


def _trained(workdir: pathlib.Path, digest: str) -> bool:
  """Return whether this run trained the model with this digest."""
  if not workdir.is_dir() or run_dir.model_digest(workdir) != digest:
    return False
  # A run of no rounds, that only evaluates, ends with its initial model.
  return run_dir.load_config(workdir)['data'].partition('+')[2] != digest


def _hash(value: Any) -> str:
  return result_file.digest(value)[:16]
