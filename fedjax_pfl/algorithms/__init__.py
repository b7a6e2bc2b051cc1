"""One federated method a file, found by its name."""

import importlib
import pkgutil
from types import ModuleType

from fedjax_pfl.core.errors import bad_input


def available() -> tuple[str, ...]:
  """Return the names of all methods: the files in `algorithms/`."""
  return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> ModuleType:
  """Return the module of a method: `HParams`, `build`, `FEDAVG_EQUIVALENT`.

  >>> stages = load('fedbabu').build(task, load('fedbabu').HParams())
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
