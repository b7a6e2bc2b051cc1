"""Rules: what a setting may be, and the sentence for a value that it may not.

Fields of records have one each (records.py): those of a config, and the
hyperparameters of a method. A number that is traced, as those of a sweep are,
has been checked before.
"""

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any, NamedTuple

import jax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Task


class Rule(NamedTuple):
  """Whether a value is allowed, and the words for one that is not."""

  holds: Callable[[Any], bool]
  expected: str
  cause: str = ''
  choices: Collection[object] | None = None

  def or_none(self, meaning: str) -> 'Rule':
    """Return the rule that accepts None as well, which means this."""
    return self._replace(
      holds=lambda value: value is None or self.holds(value),
      expected=f'{self.expected}, or None: {meaning}',
    )

  def check(self, name: str, value: Any) -> None:
    """Refuse a value that breaks the rule; `name` is what the user calls it."""
    if isinstance(value, jax.core.Tracer):
      return
    if not self.holds(value):
      raise bad_input(
        name,
        got=value,
        expected=self.expected,
        choices=self.choices,
        cause=self.cause,
      )


INTERVALS = {  # by their brackets
  '[]': '{} from {:g} to {:g}',
  '[)': '{} from {:g} to below {:g}',
  '(]': '{} above {:g} and up to {:g}',
  '()': '{} above {:g} and below {:g}',
}


def interval(
  ends: str, cause: str = '', what: str = 'a number', expected: str = ''
) -> Rule:
  """Return the rule of a finite number in an interval, such as '[0, 1)'."""
  low, high = map(float, ends[1:-1].split(','))
  brackets = ends[0] + ends[-1]
  left_out = [low] * ('(' in brackets) + [high] * (')' in brackets)

  def holds(value) -> bool:
    is_between = is_number(value) and low <= value <= high
    return is_between and value not in left_out

  expected = expected or INTERVALS[brackets].format(what, low, high)
  return Rule(holds, expected, cause)


def at_least(low: float, cause: str = '') -> Rule:
  """Return the rule of a finite number, `low` or more."""
  return interval(f'[{low}, inf)', cause, expected=f'a number, {low} or more')


def above(low: float, cause: str = '', expected: str = '') -> Rule:
  """Return the rule of a finite number above `low`."""
  expected = expected or f'a number above {low}'
  return interval(f'({low}, inf)', cause, expected=expected)


def share(cause: str = 'a percentage') -> Rule:
  """Return the rule of a number from 0 to 1."""
  return interval('[0, 1]', cause)


def momentum() -> Rule:
  """Return the rule of the momentum of SGD."""
  return interval('[0, 1)', what='a momentum')


def count(what: str, cause: str = '', smallest: int = 1) -> Rule:
  """Return the rule of a whole number of something, `smallest` or more."""
  return Rule(
    lambda value: is_int(value) and value >= smallest,
    f'a whole number of {what}, {smallest} or more',
    cause,
  )


def auto_or_count(what: str) -> Rule:
  """Return the rule of 1 or more of something, or of "auto"."""
  return Rule(
    lambda value: value == 'auto' or (is_int(value) and value >= 1),
    f'"auto" or a whole number of {what}, 1 or more',
    f'a fraction, or 0 for "all": write the number of {what}',
  )


def one_of(
  choices: Collection[str], expected: str = 'one of these', cause: str = ''
) -> Rule:
  """Return the rule of a word that is among the choices."""
  choices = tuple(choices)
  holds = lambda value: isinstance(value, str) and value in choices
  return Rule(holds, expected, cause, choices)


def protocol(choices: Collection[str] = ('paper', 'released')) -> Rule:
  """Return the rule of `protocol`: the paper's text, or its public code."""
  return one_of(choices, 'a reading of the paper')


def tuple_of(
  holds: Callable[[Any], bool], expected: str, cause: str = ''
) -> Rule:
  """Return the rule of a list, for each of whose values `holds` does."""
  return Rule(
    lambda value: isinstance(value, tuple | list) and all(map(holds, value)),
    expected,
    cause,
  )


def boolean() -> Rule:
  """Return the rule of True or False."""
  return Rule(lambda v: isinstance(v, bool), 'one of two', '', (True, False))


def plain(value: Any) -> Any:
  """Return the number of an array of one number; all else as it is."""
  is_traced = isinstance(value, jax.core.Tracer)
  is_array = not is_traced and getattr(value, 'shape', None) == ()
  return value.item() if is_array else value


def check_cross_entropy(task: Task, method: str) -> None:
  """Refuse a loss of the user's own in a method that changes cross-entropy."""
  if task.example_loss is None:
    return
  raise bad_input(
    'loss',
    got=getattr(task.example_loss, '__name__', 'a function'),
    expected=f'cross_entropy with {method}: it changes the logits inside '
    'cross-entropy, so that another loss would leave nothing of the method',
    choices=['loss=cross_entropy', 'algorithm=fedavg', 'algorithm=moon'],
  )


def check_sgd(optimizer: str, method: str, reason: str) -> None:
  """Refuse another local optimiser in a method whose equation needs SGD."""
  one_of(['sgd'], f'sgd with {method}: {reason}').check('optimizer', optimizer)


def equals(number: Any, value: float) -> bool:
  """Return whether a number of a setting is this one.

  A traced Python number never is: 0 and 1 are constants of a program
  (settings/validate.py). Of other traced arrays jax refuses to say.
  """
  if isinstance(number, jax.core.Tracer) and number.weak_type:
    return False
  return bool(number == value)


def is_int(value: Any) -> bool:
  return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
  """Return whether a value is a finite number, and no bool."""
  is_real = isinstance(value, Real) and not isinstance(value, bool)
  return is_real and -math.inf < value < math.inf
