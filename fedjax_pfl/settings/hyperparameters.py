"""The hyperparameters of a method, checked as its record declares them.

And the numbers that a compiled program can have as arguments. They change no
shape and no number of steps: the fields that are `traced` (field.py), and the
hyperparameters that the method's record declares as float.
"""

import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.core.rules import Rule, is_int, one_of
from fedjax_pfl.settings.schema import FIELDS, Settings
from fedjax_pfl.settings.validate import check_size, flat_config, from_flat

MOST = 1_000_000  # epochs, steps, clusters: more would never end
TRACED = tuple(name for name, one in FIELDS.items() if one.traced)
HP = 'hp.'
UNIONS = types.UnionType, typing.Union
SMALL = Rule(
  lambda value: not is_int(value) or abs(value) <= MOST,
  f'a whole number up to {MOST}',
  'a digit too many',
)


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
    one_of(
      defaults,
      f'a hyperparameter of {method}',
      'a setting of another method, or a typing error',
    ).check('hp', name)
    Rule(
      lambda value, hint=hints[name]: _fits(value, hint),
      f'a value of the kind of its default, {defaults[name]!r}',
      'a hyperparameter of the same name in another method',
      [_words(hints[name])],
    ).check(f'hp.{name}', value)
    check_size(f'hp.{name}', value)
    SMALL.check(f'hp.{name}', value)


def _words(hint: Any) -> str:
  """Return what an annotation allows: 'float | None'."""
  inner = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else [hint]
  return ' | '.join(
    one.__name__.removesuffix('Type') if isinstance(one, type) else str(one)
    for one in inner
    if typing.get_origin(one) is not Callable  # which no config can hold
  )


def _fits(value: Any, hint: Any) -> bool:
  """Return whether the value is what an annotation says.

  A whole number may stand for a float; True may stand for no number, and
  neither may infinity or NaN.
  """
  inner, origin = typing.get_args(hint), typing.get_origin(hint)
  if origin is tuple:
    is_list = isinstance(value, tuple | list)
    return is_list and all(_fits(item, inner[0]) for item in value)
  if origin in UNIONS:
    return any(_fits(value, one) for one in inner)
  if hint is float and type(value) is float:
    return math.isfinite(value)
  return type(value) is (int if hint is float else hint)


# ---- numbers of a compiled program -------------------------------------------


def flat_settings(settings: Settings) -> dict[str, Any]:
  """Return every field by name, hyperparameters with the method's defaults.

  >>> flat_settings(settings)['hp.mu']
  0.01
  """
  fields = flat_config(settings)
  given = fields.pop('hp')
  defaults = algorithms.load(settings.algorithm).HParams()._asdict()
  hp = {**defaults, **given}
  return fields | {f'{HP}{name}': value for name, value in hp.items()}


def traced_names(settings: Settings) -> tuple[str, ...]:
  """Return the names of the numbers that a program may have as arguments."""
  hints = typing.get_type_hints(algorithms.load(settings.algorithm).HParams)
  fields = flat_settings(settings)
  floats = (
    f'{HP}{name}'
    for name, hint in hints.items()
    if float in (hint, *typing.get_args(hint))
  )
  return tuple(
    name for name in (*TRACED, *floats) if type(fields[name]) in (int, float)
  )


def with_numbers(settings: Settings, numbers: Mapping[str, Any]) -> Settings:
  """Return the settings with traced numbers, which no rule is asked of."""
  flat = {**flat_config(settings), **numbers}
  of_hp = [name for name in flat if name.startswith(HP)]
  own = {name.removeprefix(HP): flat.pop(name) for name in of_hp}
  return from_flat({**flat, 'hp': {**settings.hp, **own}})
