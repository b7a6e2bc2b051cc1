"""A number of several settings in the one program that they share.

Arithmetic uses a traced array, which has the value of one setting at a time. A
decision in Python (`if decay:`, `mu < 0`) is made while the program is traced,
so it has to be the same for all settings: it is asked of the value of each, and
where the answers differ, no program fits them all.
"""

import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import jax.numpy as jnp

from fedjax_pfl.core.types import Array


class Differ(Exception):
  """A decision in Python in which settings differ; `answers` has that of each.

  It is no error: these settings need programs of their own.
  """

  def __init__(self, answers: Sequence[Any]):
    super().__init__(f'settings decide differently: {answers}')
    self.answers = tuple(answers)


def _decide(question: Callable[[float], Any]) -> Callable:
  """Return the method that asks a question of the value of every setting."""

  def method(self):
    return _same([question(value) for value in self.values])

  return method


def _compare(compare: Callable) -> Callable:
  """Return the method of <, == and so on: a decision, but with an array."""

  def method(self, other):
    if hasattr(other, 'dtype'):
      return compare(self.like(other), other)
    return _same([compare(*pair) for pair in _pairs(self, other)])

  return method


def _combine(combine: Callable, swapped: bool = False) -> Callable:
  """Return the method of + - * / **: of two numbers it returns a number."""

  def in_order(one, other):
    return combine(other, one) if swapped else combine(one, other)

  def method(self, other):
    if not isinstance(other, Real):
      return in_order(self.like(other), other)
    values, array = [in_order(*pair) for pair in _pairs(self, other)], None
    if self.array is not None:
      other = other.array if isinstance(other, TracedNumber) else other
      array = in_order(self.array, other)
    return TracedNumber(values, array)

  return method


def _pairs(number: 'TracedNumber', other: Any) -> list[tuple[float, Any]]:
  """Return the value of each setting with that of the other."""
  others = [other] * len(number.values)
  if isinstance(other, TracedNumber):
    others = other.values
  return list(zip(number.values, others, strict=True))


def _same(answers: list[Any]) -> Any:
  """Return the answer of all settings; raise Differ if they have several."""
  if any(answer != answers[0] for answer in answers):
    raise Differ(answers)
  return answers[0]


class TracedNumber:
  """The number of one setting as an array [], and the values of all settings.

  Without an array it can only decide. Whatever takes it for something else, as
  numpy or some functions of JAX may, raises TypeError or ValueError: it never
  stands for the value of a single setting.
  """

  __array_ufunc__ = None  # numpy leaves arithmetic to this class

  def __init__(self, values: Sequence[float], array: Array | None = None):
    self.values = tuple(values)
    self.array = array

  def __jax_array__(self) -> Array:
    return jnp.asarray(float(self)) if self.array is None else self.array

  def like(self, other: Array) -> Array:
    """Return the array as JAX takes a Python number beside another array."""
    array = self.__jax_array__()
    is_floating = jnp.issubdtype(other.dtype, jnp.floating)
    return array.astype(other.dtype) if is_floating else array

  def __deepcopy__(self, memo: dict) -> 'TracedNumber':
    return self  # for dataclasses.asdict: a tracer has no copy

  def __repr__(self) -> str:
    return ' or '.join(f'{value:g}' for value in self.values)

  def __hash__(self) -> int:
    return hash(float(self))

  def __neg__(self) -> 'TracedNumber':
    return -1 * self

  __bool__, __float__, __int__ = _decide(bool), _decide(float), _decide(int)
  __lt__, __le__ = _compare(operator.lt), _compare(operator.le)
  __gt__, __ge__ = _compare(operator.gt), _compare(operator.ge)
  __eq__, __ne__ = _compare(operator.eq), _compare(operator.ne)
  __add__, __radd__ = _combine(operator.add), _combine(operator.add, True)
  __sub__, __rsub__ = _combine(operator.sub), _combine(operator.sub, True)
  __mul__, __rmul__ = _combine(operator.mul), _combine(operator.mul, True)
  __truediv__ = _combine(operator.truediv)
  __rtruediv__ = _combine(operator.truediv, True)
  __pow__, __rpow__ = _combine(operator.pow), _combine(operator.pow, True)


Real.register(TracedNumber)  # for isinstance, where a method checks its type
