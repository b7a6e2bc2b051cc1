"""The hyperparameters of a method, checked as its record declares them."""

import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.settings.validate import check_size

MOST = 1_000_000  # epochs, steps, clusters: more would never end
KINDS = {
  float: 'a number',
  int: 'a whole number',
  str: 'a word',
  bool: 'True or False',
  types.NoneType: 'None',
}


def check_hyperparameters(
  method: str,
  given: Mapping[str, Any],
  fields: type,
  others: Collection[str] = (),
) -> None:
  """Refuse what the method has not got, and values of another kind.

  `fields` is the method's record; those named in `others` are no settings.
  """
  defaults = {
    name: value
    for name, value in fields()._asdict().items()
    if name not in others
  }
  hints = typing.get_type_hints(fields)
  for name, value in given.items():
    if name not in defaults:
      raise bad_input(
        'hp',
        got=name,
        expected=f'a hyperparameter of {method}',
        choices=defaults,
        cause='a setting of another method, or a typing error',
      )
    _check_value(f'hp.{name}', value, defaults[name], hints[name])


def _check_value(name: str, value: Any, default: Any, hint: Any) -> None:
  if not _fits(value, hint):
    raise bad_input(
      name,
      got=value,
      expected=f'a value of the kind of its default, {default!r}',
      choices=_words(hint),
      cause='a hyperparameter of the same name in another method',
    )
  check_size(name, value)
  if type(value) is int and abs(value) > MOST:
    raise bad_input(
      name,
      got=value,
      expected=f'a whole number up to {MOST}',
      cause='a digit too many',
    )


def _fits(value: Any, hint: Any) -> bool:
  """Return whether the value is what an annotation says.

  A whole number may stand for a float; True may stand for no number, and
  neither may infinity or NaN.
  """
  inner = typing.get_args(hint)
  if typing.get_origin(hint) is tuple:
    is_list = isinstance(value, tuple | list)
    return is_list and all(_fits(item, inner[0]) for item in value)
  if hint is float and type(value) is float:
    return abs(value) < float('inf')
  if hint is float:
    return type(value) is int
  if _is_union(hint):
    return any(_fits(value, one) for one in inner)
  return type(value) is hint


def _words(hint: Any) -> list[str]:
  """Return what an annotation allows, for a user to read."""
  inner = typing.get_args(hint)
  if typing.get_origin(hint) is tuple:
    return [f'a list, each {_words(inner[0])[0]}']
  if _is_union(hint):
    return [word for one in inner for word in _words(one)]
  return [KINDS[hint]] if hint in KINDS else []  # a function: not of a config


def _is_union(hint: Any) -> bool:
  return typing.get_origin(hint) in (types.UnionType, typing.Union)
