"""Read a pickle of dicts, lists, numbers, texts and arrays; run no code.

A pickle names functions, and its reader calls them. Here each name that NumPy
writes stands for one of this file; any other is refused before it is called.
"""

import pickle  # names are looked up in `find_class` alone
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

KINDS = tuple(f'{kind}{size}' for kind in 'iuf' for size in (1, 2, 4, 8))


class Dtype:
  """What stands for a dtype of numbers, or of objects."""

  def __init__(self, code: str, *_: Any):
    if code not in (*KINDS, 'b1', 'O8', 'O'):
      raise ValueError(f'an array of {code!r}')
    self.code = code

  def __setstate__(self, state: tuple) -> None:
    if state[1] not in ('<', '>', '|', '='):
      raise ValueError(f'an array whose bytes are in the order {state[1]!r}')
    is_number = self.code in KINDS
    self.code = state[1] * is_number + self.code


class Array:
  """What stands for an array, until its state has come."""

  value: np.ndarray

  def __init__(self, *_: Any):
    pass

  def __setstate__(self, state: tuple) -> None:
    _, shape, dtype, is_fortran, content = state
    order = 'F' if is_fortran else 'C'
    if dtype.code.startswith('O'):
      self.value = np.empty(len(content), object)
      self.value[:] = content
    else:
      self.value = np.frombuffer(content, dtype.code)
    self.value = self.value.reshape(shape, order=order)


def scalar(dtype: Dtype, content: bytes) -> np.generic:
  """Return a number of NumPy."""
  return np.frombuffer(content, dtype.code)[0]


NAMES = {
  ('numpy', 'dtype'): Dtype,
  ('numpy', 'ndarray'): 'the first argument of _reconstruct',
  **{
    (f'numpy.{core}.multiarray', name): stand_in
    for core in ('core', '_core')
    for name, stand_in in (('_reconstruct', Array), ('scalar', scalar))
  },
}


class Reader(pickle.Unpickler):
  """An unpickler that knows the names of NumPy's arrays, and no other."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in NAMES:
      raise ValueError(f'it names {module}.{name}, which is no array')
    return NAMES[module, name]


def load(stream: BinaryIO) -> Any:
  """Return what was pickled; raise ValueError for damage and for code."""
  try:
    return plain(Reader(stream).load())
  except Exception as error:  # of damaged bytes, of any kind
    raise ValueError(f'it is no pickle of arrays: {error}') from error


def plain(value: Any) -> Any:
  """Return the value with arrays in the place of what stands for them."""
  if isinstance(value, Array):
    array = value.value
    return plain(array.item()) if array.shape == () else array
  if isinstance(value, dict):
    return {name: plain(one) for name, one in value.items()}
  return value


def rows(values: Iterable[Any]) -> list[Any]:
  """Return the elements of an array of objects."""
  return [one.value if isinstance(one, Array) else one for one in values]
