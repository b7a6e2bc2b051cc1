"""Refuse hyperparameters that a method cannot use, before it is traced."""

from collections.abc import Callable, Iterable
from typing import Any

import jax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Task

PROTOCOLS = ('paper', 'released')


def check(
  hp: tuple,
  field: str,
  holds: bool | Callable[[Any], bool],
  expected: str,
  cause: str,
  choices: Iterable[object] | None = None,
) -> None:
  """Refuse the value of hp.field, unless the rule `holds`.

  A traced number is not asked: it was checked before it was traced.
  """
  value = getattr(hp, field)
  if callable(holds):
    holds = isinstance(value, jax.core.Tracer) or holds(value)
  if not holds:
    raise bad_input(
      f'hp.{field}',
      got=value,
      expected=expected,
      choices=choices,
      cause=cause,
    )


def check_choice(
  hp: tuple, field: str, choices: Iterable[str], expected: str
) -> None:
  """Refuse a word that is not among the choices."""
  choices = tuple(choices)
  is_known = getattr(hp, field) in choices
  check(hp, field, is_known, expected, 'a typing error', choices)


def check_protocol(hp: tuple, choices: Iterable[str] = PROTOCOLS) -> None:
  """Refuse what is neither the paper's text nor its public code."""
  check_choice(hp, 'protocol', choices, 'a reading of the paper')


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


def equals(number: Any, value: float) -> bool:
  """Return whether a number of a setting is this one.

  A traced Python number never is: where a method asks, 0 and 1 are constants of
  its program (training/program.py). Of other traced arrays jax refuses to say.
  """
  if isinstance(number, jax.core.Tracer) and number.weak_type:
    return False
  return bool(number == value)


def is_count(value: Any, smallest: int = 1) -> bool:
  """Return whether the value is a whole number, `smallest` or more."""
  return type(value) is int and value >= smallest
