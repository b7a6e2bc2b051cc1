"""Records of settings: a field states its default, its rule and its help once.

  @record('finetune.')
  class Finetuning:
    ... Args: one line of help for each field ...
    momentum: float = field(0.9, momentum(), EVALUATES)
    shuffle: bool = True

A field of a config is called by its name, or else by the prefix of its record
and its attribute. A plain field is in no config. A record is frozen, and
refuses bad values when it is made; `_replace` returns another.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, dataclass_transform

import numpy as np

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, plain

# What a field changes: the numbers of training, those of evaluation alone, or
# none beyond rounding.
TRAINING, EVALUATION = 'training', 'evaluation'
TRAINS = frozenset({TRAINING})
EVALUATES = frozenset({EVALUATION})
BOTH = TRAINS | EVALUATES
NOTHING = frozenset()
MAX_INT = 2**31 - 1  # whole numbers on a device have 32 bits
MAX_FLOAT = 3.4e38  # floats as well

# A field in the docstring of a record: its name, and lines of help.
HELP = re.compile(r'^  (\w+): (.*(?:\n {4}.*)*)', re.MULTILINE)


class Field(NamedTuple):
  """A field of a record: what it may be, and what it means in a config."""

  default: Any
  rule: Rule
  changes: frozenset[str] = TRAINS
  resumable: bool = False  # may differ between two parts of one run
  traced: bool = False  # a number that changes no shape: see validate.py
  # (another field, a value): this field does nothing while the other one has
  # its default; with `only`, while it has any other value than this.
  needs: tuple[str, Any] | None = None
  only: bool = False
  largest: int = MAX_INT
  stored: Callable[[Any], Any] | None = None  # value -> what the record holds
  in_config: bool = True
  name: str = ''  # in a config
  section: str = ''  # of the settings; '' where it stands in Settings itself
  attribute: str = ''  # of the record
  help: str = ''  # from the docstring of the record

  def checked(self, value: Any) -> Any:
    """Return the value as the record holds it; refuse a bad one."""
    self.rule.check(self.name, plain(value))
    check_size(self.name, value, self.largest)
    value = without_numpy(value)
    if isinstance(value, list):
      value = tuple(value)
    return self.stored(value) if self.stored else value


def field(*stated: Any, **more: Any) -> Any:
  """Return the dataclass field that states this `Field`."""
  declared = Field(*stated, **more)
  default = lambda: declared.default
  return dataclasses.field(
    default_factory=default, metadata={'field': declared}
  )


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
  prefix: str = '', more: Mapping[str, Field] = MappingProxyType({})
) -> Callable[[type], type]:
  """Return the decorator of a record; names of its fields have this prefix.

  more: fields by attribute that stand elsewhere, each with its help.
  """

  def decorate(kind):
    for name, stated in more.items():
      setattr(kind, name, field(*stated))
      kind.__annotations__[name] = type(stated.default)
    kind.__post_init__, kind._replace = _check, dataclasses.replace
    kind = dataclasses.dataclass(frozen=True)(kind)
    # Python 3.13 stores docstrings without their indentation.
    helps = dict(HELP.findall(inspect.cleandoc(kind.__doc__ or '')))
    kind.ruled = {
      attribute.name: stated._replace(
        name=stated.name or f'{prefix}{attribute.name}',
        attribute=attribute.name,
        help=' '.join(helps.get(attribute.name, stated.help).split()),
      )
      for attribute in dataclasses.fields(kind)
      if (stated := attribute.metadata.get('field'))
    }
    return kind

  return decorate


def _check(self: Any) -> None:
  for attribute, stated in self.ruled.items():
    value = stated.checked(getattr(self, attribute))
    object.__setattr__(self, attribute, value)


def without_numpy(value: Any) -> Any:
  """Return Python's number for one of numpy."""
  return value.item() if isinstance(value, np.generic) else value


def check_size(name: str, value: Any, largest: int = MAX_INT) -> None:
  """Refuse numbers that 32 bits do not hold, also inside a list."""
  for number in value if isinstance(value, tuple | list) else (value,):
    is_whole = isinstance(number, int) and abs(number) > largest
    is_real = isinstance(number, float) and MAX_FLOAT < abs(number) < math.inf
    if is_whole or is_real:
      raise bad_input(
        name,
        got=value,
        expected=f'whole numbers up to {largest}, others up to {MAX_FLOAT}, '
        'what 32 bits hold',
      )


# ---- rules of fields ---------------------------------------------------------


def or_code(rule: Rule) -> Rule:
  """Return the rule that also allows code of the user's own, by its name."""
  return rule._replace(
    holds=lambda value: rule.holds(value) or user_code.is_code(value),
    expected=f'{rule.expected}, or your own as {user_code.FORM}',
  )


def path(expected: str) -> Rule:
  """Return the rule of a path that a file system can hold."""

  def holds(value):
    if not isinstance(value, str) or '\0' in value or len(value) >= 4000:
      return False
    names = value.encode(errors='replace').split(b'/')
    return max(map(len, names)) <= 255  # bytes

  return Rule(holds, expected, 'a pathlib.Path: write str(path)')
