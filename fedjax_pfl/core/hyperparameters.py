"""Rules of hyperparameters, which a method declares beside their record.

  class HParams(NamedTuple):
    ...
    mu: float = 0.01

  RULES = {'mu': at_least(0, 'a sign: it would push clients apart')}

`build` begins with `check(hp, RULES)`. A number that is traced, as those of a
sweep are, has been checked before.
"""

import math
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any, NamedTuple

import jax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Task

PROTOCOLS = ('paper', 'released')
TYPO = 'a typing error'


class Rule(NamedTuple):
  """What a hyperparameter has to be, for a check and for its message."""

  holds: Callable[[Any], bool]
  expected: str
  cause: str = TYPO
  choices: Collection[object] | None = None

  def or_none(self, meaning: str) -> 'Rule':
    """Return the rule that accepts None as well, which means this."""
    return self._replace(
      holds=lambda value: value is None or self.holds(value),
      expected=f'{self.expected}, or None: {meaning}',
    )


Rules = Mapping[str, Rule]  # by the name of the field


def at_least(low: float, cause: str, expected: str = '') -> Rule:
  """Return the rule of a finite number, `low` or more."""
  return Rule(
    lambda value: _is_number(value) and value >= low,
    expected or f'a number, {low} or more',
    cause,
  )


def above(low: float, cause: str, expected: str = '') -> Rule:
  """Return the rule of a finite number above `low`."""
  return Rule(
    lambda value: _is_number(value) and value > low,
    expected or f'a number above {low}',
    cause,
  )


def share(cause: str, expected: str = 'a number from 0 to 1') -> Rule:
  """Return the rule of a number from 0 to 1."""
  return Rule(
    lambda value: _is_number(value) and 0 <= value <= 1, expected, cause
  )


def momentum() -> Rule:
  """Return the rule of the momentum of SGD."""
  return Rule(
    lambda value: _is_number(value) and 0 <= value < 1,
    'a momentum from 0 to below 1',
    'a sign, or a percentage',
  )


def count(what: str, cause: str, smallest: int = 1) -> Rule:
  """Return the rule of a whole number of something, `smallest` or more."""
  return Rule(
    lambda value: type(value) is int and value >= smallest,
    f'{what}, {smallest} or more',
    cause,
  )


def one_of(choices: Collection[str], expected: str) -> Rule:
  """Return the rule of a word that is among the choices."""
  return Rule(choices.__contains__, expected, choices=tuple(choices))


def protocol(choices: Collection[str] = PROTOCOLS) -> Rule:
  """Return the rule of `protocol`: the paper's text, or its public code."""
  return one_of(choices, 'a reading of the paper')


def check(hp: tuple, rules: Rules) -> None:
  """Refuse the first hyperparameter that breaks its rule."""
  for field, rule in rules.items():
    value = getattr(hp, field)
    if not isinstance(value, jax.core.Tracer) and not rule.holds(value):
      raise bad_input(
        f'hp.{field}',
        got=value,
        expected=rule.expected,
        choices=rule.choices,
        cause=rule.cause,
      )


def equals(number: Any, value: float) -> bool:
  """Return whether a number of a setting is this one.

  A traced Python number never is: where a method asks, 0 and 1 are constants of
  its program (training/program.py). Of other traced arrays jax refuses to say.
  """
  if isinstance(number, jax.core.Tracer) and number.weak_type:
    return False
  return bool(number == value)


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
    cause='a comparison of methods under one loss, of which this is one',
  )


def _is_number(value: Any) -> bool:
  is_real = isinstance(value, Real) and not isinstance(value, bool)
  return is_real and -math.inf < value < math.inf
