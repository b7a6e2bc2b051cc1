"""Numbers of a setting that a compiled program can have as arguments.

They change no shape and no number of steps: the fields that are `traced`
(field.py), and the hyperparameters that the method's record declares as float.
"""

import dataclasses
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.settings.schema import FIELDS, Settings
from fedjax_pfl.settings.validate import flat_config

TRACED = tuple(name for name, one in FIELDS.items() if one.traced)
HP = 'hp.'


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
  hp, sections = dict(settings.hp), {}
  for name, number in numbers.items():
    if name.startswith(HP):
      hp[name.removeprefix(HP)] = number
    else:
      field = FIELDS[name]
      sections.setdefault(field.section, {})[field.attribute] = number
  changed = {
    section: dataclasses.replace(getattr(settings, section), **changes)
    for section, changes in sections.items()
  }
  return dataclasses.replace(settings, hp=MappingProxyType(hp), **changed)
