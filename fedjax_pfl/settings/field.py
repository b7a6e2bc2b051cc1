"""What a field of the settings states: its default, what is allowed, help."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_pfl.core import user_code

# What a field changes: the numbers of training, those of evaluation alone, or
# none beyond rounding.
TRAINING, EVALUATION = 'training', 'evaluation'
TRAINS = frozenset({TRAINING})
EVALUATES = frozenset({EVALUATION})
BOTH = TRAINS | EVALUATES
NOTHING = frozenset()
# Keys have 32 bits of a seed: a larger one would be that of another run.
MAX_SEED = 2**32 - 1

record = dataclasses.dataclass(frozen=True, kw_only=True)


class Rule(NamedTuple):
  """Whether a value is allowed, and the words for one that is not."""

  holds: Callable[[Any], bool]
  expected: str
  cause: str
  choices: tuple[Any, ...] | Callable[[], tuple[str, ...]] | None = None

  def listed_choices(self) -> tuple[Any, ...] | None:
    return self.choices() if callable(self.choices) else self.choices


class Field(NamedTuple):
  """A field of a config: flat, but for hp.X and finetune.X."""

  default: Any
  rule: Rule
  help: str
  changes: frozenset[str] = TRAINS
  resumable: bool = False  # may differ between two parts of one run
  traced: bool = False  # a number that changes no shape: see traced.py
  name: str = ''  # on the command line
  section: str = ''  # '' where it stands in Settings itself
  attribute: str = ''  # of the section


def field(*stated: Any, **more: Any) -> Any:
  """Return the dataclass field that states this `Field`."""
  one = Field(*stated, **more)
  return dataclasses.field(
    default_factory=lambda: one.default, metadata={'field': one}
  )


def fields_of(section: str, kind: type, prefix: str = '') -> dict[str, Field]:
  """Return the fields of a section by their names on the command line."""
  found = {}
  for own in dataclasses.fields(kind):
    if stated := own.metadata.get('field'):
      name = stated.name or f'{prefix}{own.name}'
      found[name] = stated._replace(
        name=name, section=section, attribute=own.name
      )
  return found


def one_of(choices, expected: str, cause: str = 'a typing error') -> Rule:
  names = tuple(choices)
  return Rule(
    lambda value: isinstance(value, str) and value in names,
    expected,
    cause,
    names,
  )


def or_code(rule: Rule) -> Rule:
  """Return the rule that also allows code of the user's own, by its name."""
  return rule._replace(
    holds=lambda value: rule.holds(value) or user_code.is_code(value),
    expected=f'{rule.expected}, or your own as {user_code.FORM}',
    cause=f'{rule.cause}; or a file without the name in it, a name without '
    'its file',
  )


def at_least(least: int, what: str, cause: str) -> Rule:
  return Rule(
    lambda value: is_int(value) and value >= least,
    f'a whole number of {what}, {least} or more',
    cause,
  )


def tuple_of(holds: Callable[[Any], bool], expected: str, cause: str) -> Rule:
  return Rule(
    lambda value: isinstance(value, tuple | list) and all(map(holds, value)),
    expected,
    cause,
  )


def boolean(cause: str) -> Rule:
  return Rule(
    lambda value: isinstance(value, bool), 'yes or no', cause, (True, False)
  )


def number(holds: Callable[[float], bool], expected: str, cause: str) -> Rule:
  return Rule(lambda value: is_number(value) and holds(value), expected, cause)


def path(expected: str) -> Rule:
  return Rule(
    is_path,
    expected,
    'None, a pathlib.Path (write str(path)), or a name that no disk has',
  )


def is_path(value: Any) -> bool:
  """Return whether a file system can hold the name: parts have 255 bytes."""
  if not isinstance(value, str) or '\0' in value:
    return False
  names = value.encode(errors='replace').split(b'/')
  return max(map(len, names)) <= 255 and len(value) < 4000


def is_int(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
  is_real = isinstance(value, int | float) and not isinstance(value, bool)
  return is_real and math.isfinite(value)


LEARNING_RATE = number(
  lambda value: value > 0,
  'a learning rate above 0',
  'a sign, or a zero too many; 0 would train nothing',
)
MOMENTUM = number(
  lambda value: 0 <= value < 1,
  'a momentum from 0 to below 1',
  'the learning rate and the momentum interchanged; 1 never slows down',
)
BATCH_SIZE = at_least(
  1, 'examples', '0 or None for "all": write a number that holds all'
)
VIEWS = tuple_of(
  lambda value: isinstance(value, str),
  'names of views, such as "initial" and "finetuned"',
  "a single name: write ('initial',)",
)
# Whether the model has these layers is checked when the model is known.
LAYERS = Rule(
  lambda value: isinstance(value, str) and all(value.split('+')),
  "'full', 'body', 'head', or names of layers joined by '+'",
  'a list of layers: write "conv1+bn1"',
)
