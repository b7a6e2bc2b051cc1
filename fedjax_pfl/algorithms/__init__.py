"""One federated method a file; the file is found by the method's name."""

import functools
import importlib
import inspect
import pathlib
import pkgutil
from types import ModuleType
from typing import Any

from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.user_code import (
  FORM,
  is_code,
  load_code,
  value_of,
  without_digest,
)

# Hyperparameters that are records of other fields of the config.
SHARED = {'train': LocalTraining, 'finetune': Finetuning}


def available() -> tuple[str, ...]:
  """Return the names of all methods: the files in `algorithms/`.

  Returns:
    The names, sorted.

  >>> 'fedbabu' in pfl.available()
  True
  """
  return _names_in(tuple(__path__))


@functools.cache
def _names_in(folders: tuple[str, ...]) -> tuple[str, ...]:
  return tuple(sorted(module.name for module in pkgutil.iter_modules(folders)))


def across_models() -> list[str]:
  """Return the methods for clients of different models, and what these need.

  >>> across_models()[:3]
  ['fd', 'fedgen with hp.shared=head', 'fedgh']
  """
  needs = {
    name: getattr(load(name), 'ACROSS_MODELS', None) for name in available()
  }
  return [
    f'{name} with {need}' if need else name
    for name, need in needs.items()
    if need is not None
  ]


def needs_body(module: ModuleType) -> bool:
  """Return whether a method has nothing to share of a head alone."""
  private = getattr(module, 'PRIVATE_LEAVES', ())
  return 'head' in private or getattr(module, 'NEEDS_BODY', False)


def paper_name(name: str) -> str:
  """Return what the paper calls a method; of the user's own, its name.

  Its docstring begins with it. The file is read and not imported.

  >>> paper_name('knn_per'), paper_name('nap.py:fednap#4f0c8e21ab37')
  ('kNN-Per', 'fednap')
  """
  name = without_digest(name).rpartition('.py:')[2]
  if name not in available():
    return name
  text = (pathlib.Path(__path__[0]) / f'{name}.py').read_text(encoding='utf-8')
  return text.removeprefix('"""').partition(' (')[0]


def algorithm(name: str) -> ModuleType:
  """Return the module of a method.

  Args:
    name: of the method, one of `available()`; or 'FILE.py:NAME', a file of
      your own, which is run (docs/howto/own_method.md).

  Returns:
    The module, with `HParams`, the record of its hyperparameters, and
    `build(task, hp)`, which returns a tuple of stages.

  >>> fedbabu = pfl.algorithm('fedbabu')
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> (stage,) = fedbabu.build(task, fedbabu.HParams(trainable='body'))
  >>> stage.name
  'fedbabu'
  """
  return load(load_code({'algorithm': name})['algorithm'])


def load(name: str) -> ModuleType:
  """Return the module of a method; code of the user's own has to be loaded."""
  if is_code(name):
    return _check(name, value_of('algorithm', name))
  if name not in available():
    raise bad_input(
      'algorithm',
      got=name,
      expected='the name of a file in fedjax_pfl/algorithms, or your own as '
      f'{FORM}',
      choices=available(),
    )
  return importlib.import_module(f'fedjax_pfl.algorithms.{name}')


def own_defaults(method: str) -> dict[str, Any]:
  """Return the hyperparameters of a method that are no records, by name."""
  record = load(method).HParams
  names, hp = inspect.signature(record).parameters, record()
  return {name: getattr(hp, name) for name in names if name not in SHARED}


def _check(name: str, method: Any) -> Any:
  """Return a method of the user's own; refuse one that lacks its parts."""
  build = getattr(method, 'build', None)
  record = getattr(method, 'HParams', None)
  lacks = ''
  if not callable(build):
    lacks = 'no function build(task, hp)'
  elif [*inspect.signature(build).parameters][-2:] != ['task', 'hp']:
    lacks = f'build{inspect.signature(build)}'
  elif not hasattr(record, '_replace'):
    lacks = 'no NamedTuple HParams'
  fields = {} if lacks else inspect.signature(record).parameters
  defaults = {name: one.default for name, one in fields.items()}
  for field, kind in SHARED.items():
    if not lacks and not isinstance(defaults.get(field), kind):
      lacks = f'HParams without {field}: {kind.__name__} = {kind.__name__}()'
  if lacks:
    raise bad_input(
      'algorithm',
      got=f'{name} with {lacks}',
      expected='HParams, a NamedTuple whose fields have defaults, with train '
      'and finetune among them, and build(task, hp) -> (Stage, ...)',
      choices=['a copy of fedjax_pfl/algorithms/fedavg.py, to begin with'],
    )
  return method
