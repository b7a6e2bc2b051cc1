"""Read a pickle of dicts, lists, numbers, texts and arrays; run no code.

A pickle names functions, and its reader calls them. Here the names that NumPy
writes make a record, which is read afterwards; any other name is refused.
"""

import pickle  # names are looked up in `find_class` alone
import re
from typing import Any, BinaryIO

import numpy as np

NUMBERS = re.compile('[<>|=]([iu][1248]|f[248]|b1)')
NAMES = 'dtype', 'ndarray', '_reconstruct', 'scalar'
MODULES = 'numpy', 'numpy.core.multiarray', 'numpy._core.multiarray'


class Record:
  """A dtype, an array or a number: with what it was called, and its state."""

  state = None

  def __init__(self, *args: Any):
    self.args = args

  def __setstate__(self, state: tuple) -> None:
    self.state = state


class Reader(pickle.Unpickler):
  def find_class(self, module: str, name: str) -> Any:
    if module not in MODULES or name not in NAMES:
      raise ValueError(f'it names {module}.{name}, which is no array')
    return Record


def load(stream: BinaryIO) -> Any:
  """Return what was pickled; raise ValueError for damage and for code."""
  try:
    return plain(Reader(stream).load())
  except Exception as error:  # of damaged bytes, of any kind
    raise ValueError(f'it is no pickle of arrays: {error}') from error


def plain(value: Any) -> Any:
  """Return the value with arrays in the place of their records."""
  if isinstance(value, dict):
    return {name: plain(inner) for name, inner in value.items()}
  if isinstance(value, list):
    return [*map(plain, value)]
  if not isinstance(value, Record):
    return value
  number = None, (), value.args[0], False, value.args[-1]
  _, shape, dtype, is_fortran, content = value.state or number
  code = dtype.state[1] + dtype.args[0]
  if code == '|O8':
    array = np.empty(len(content), object)
    array[:] = content
  elif NUMBERS.fullmatch(code):
    array = np.frombuffer(content, code)
  else:
    raise ValueError(f'an array of {code!r}')
  array = array.reshape(shape, order='F' if is_fortran else 'C')
  return plain(array.item()) if array.shape == () else array
