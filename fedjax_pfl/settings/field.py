"""What a field of the settings states: default, rule, help, what it changes."""

import dataclasses
from typing import Any, NamedTuple

from fedjax_pfl.settings.rules import Rule

# What a field changes: the numbers of training, those of evaluation alone, or
# none beyond rounding.
TRAINING, EVALUATION = 'training', 'evaluation'
TRAINS = frozenset({TRAINING})
EVALUATES = frozenset({EVALUATION})
BOTH = TRAINS | EVALUATES
NOTHING = frozenset()


class Spec(NamedTuple):
  """All that is known of a field beside its name and type."""

  default: Any
  rule: Rule
  help: str
  changes: frozenset[str]
  resumable: bool  # may differ between two parts of one run
  config_name: str  # where it is not that of the attribute
  traced: bool  # a number that changes no shape: see traced.py


def field(
  default: Any,
  rule: Rule,
  help: str,
  changes: frozenset[str] = TRAINS,
  *,
  resumable: bool = False,
  config_name: str = '',
  traced: bool = False,
) -> Any:
  spec = Spec(default, rule, help, changes, resumable, config_name, traced)
  return dataclasses.field(
    default_factory=lambda: default, metadata={'spec': spec}
  )


record = dataclasses.dataclass(frozen=True, kw_only=True)
