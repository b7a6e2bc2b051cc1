"""One federated method a file; the file is found by the method's name."""

import importlib
import pkgutil
from types import ModuleType

from fedjax_pfl.core.errors import bad_input


def available() -> tuple[str, ...]:
  """Return the names of all methods: the files in `algorithms/`.

  Returns:
    The names, sorted.

  >>> 'fedbabu' in pfl.available()
  True
  """
  return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> ModuleType:
  """Return the module of a method.

  Args:
    name: of the method, one of `available()`.

  Returns:
    The module, with `HParams`, the record of its hyperparameters, and
    `build(task, hp)`, which returns a tuple of stages.

  >>> fedbabu = pfl.algorithm('fedbabu')
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> (stage,) = fedbabu.build(task, fedbabu.HParams(trainable='body'))
  >>> stage.name
  'fedbabu'
  """
  if name not in available():
    raise bad_input(
      'algorithm',
      got=name,
      expected='the name of a file in fedjax_pfl/algorithms',
      choices=available(),
      cause='a typing error, or a method that is not there yet',
    )
  return importlib.import_module(f'fedjax_pfl.algorithms.{name}')
