"""The numbers of one result by the round that is chosen, side by side.

Those of result.json where a run keeps examples for choosing.
"""

from collections.abc import Mapping
from typing import Any

# The last is a choice by the tests, and no table's main number.
KINDS = ('last', 'validation', 'test_best')


def has_choice(result: Mapping[str, Any]) -> bool:
  return 'validation' in result


def summaries(
  result: Mapping[str, Any],
) -> dict[str, Mapping[str, Any] | None]:
  """Return {kind: summary} of the view after personalisation.

  Of 'validation' it is that of the chosen view. None for 'test_best' where
  that view was not evaluated on the tests during the rounds (`eval_views`).
  """
  found = {
    name: result[name]['views'][result[name]['view']]
    for name in ('last', 'validation')
  }
  best = result['test_best'].get(result['last']['view'], {})
  return {**found, 'test_best': best.get('together')}
