"""What a field of the settings states: its default, what is allowed, help."""

import dataclasses
import re
from typing import Any, NamedTuple

from fedjax_pfl.core import user_code
from fedjax_pfl.core.rules import Rule

# What a field changes: the numbers of training, those of evaluation alone, or
# none beyond rounding.
TRAINING, EVALUATION = 'training', 'evaluation'
TRAINS = frozenset({TRAINING})
EVALUATES = frozenset({EVALUATION})
BOTH = TRAINS | EVALUATES
NOTHING = frozenset()
# Keys have 32 bits of a seed: a larger one would be that of another run.
MAX_SEED = 2**32 - 1

# An attribute in the docstring of a section: its name, and lines of help.
ATTRIBUTE = re.compile(r'^    (\w+): (.*(?:\n {6}.*)*)', re.MULTILINE)

record = dataclasses.dataclass(frozen=True, kw_only=True)


class Field(NamedTuple):
  """A field of a config: flat, but for hp.X, dp.X, finetune.X."""

  default: Any
  rule: Rule
  changes: frozenset[str] = TRAINS
  resumable: bool = False  # may differ between two parts of one run
  traced: bool = False  # a number that changes no shape: see validate.py
  name: str = ''  # on the command line
  section: str = ''  # '' where it stands in Settings itself
  attribute: str = ''  # of the section
  help: str = ''  # from the docstring of the section


def field(*stated: Any, **more: Any) -> Any:
  """Return the dataclass field that states this `Field`."""
  one = Field(*stated, **more)
  return dataclasses.field(
    default_factory=lambda: one.default, metadata={'field': one}
  )


def fields_of(section: str, kind: type, prefix: str = '') -> dict[str, Field]:
  """Return the fields of a section by their names on the command line."""
  helps, found = dict(ATTRIBUTE.findall(kind.__doc__ or '')), {}
  for own in dataclasses.fields(kind):
    if stated := own.metadata.get('field'):
      name = stated.name or f'{prefix}{own.name}'
      text = ' '.join(helps.get(own.name, '').split())
      found[name] = stated._replace(
        name=name, section=section, attribute=own.name, help=text
      )
  return found


def or_code(rule: Rule) -> Rule:
  """Return the rule that also allows code of the user's own, by its name."""
  return rule._replace(
    holds=lambda value: rule.holds(value) or user_code.is_code(value),
    expected=f'{rule.expected}, or your own as {user_code.FORM}',
    cause=f'{rule.cause}; or no :NAME, one word, after the file',
  )


def path(expected: str) -> Rule:
  """Return the rule of a path that a file system can hold."""

  def holds(value):
    if not isinstance(value, str) or '\0' in value or len(value) >= 4000:
      return False
    names = value.encode(errors='replace').split(b'/')
    return max(map(len, names)) <= 255  # bytes

  cause = 'None, a pathlib.Path (write str(path)), or a name that no disk has'
  return Rule(holds, expected, cause)
