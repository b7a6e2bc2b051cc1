"""Families of views that differ in one number, and their tables of scores.

The views mix_0.0, mix_0.1, .., mix_1.0 are the family 'mix'. A view without a
number, such as 'finetuned' beside 'finetuned_1', is in no family.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from fedjax_pfl.core.types import Scores

MEMBER = re.compile(r'(?P<family>.+)_(?P<value>\d+(\.\d+)?)')


def families(views: Iterable[str]) -> dict[str, list[str]]:
  """Return the views of every family of two or more, sorted by number.

  >>> families(['initial', 'mix_1.0', 'mix_0.5', 'finetuned_1'])
  {'mix': ['mix_0.5', 'mix_1.0']}
  """
  found: dict[str, dict[float, str]] = {}
  for view in views:
    if member := MEMBER.fullmatch(view):
      members = found.setdefault(member['family'], {})
      members[float(member['value'])] = view
  return {
    family: [members[value] for value in sorted(members)]
    for family, members in found.items()
    if len(members) > 1
  }


def grid(scores: Mapping[str, Scores], views: Iterable[str]) -> Scores:
  """Return the scores of a family's views as tables [K, G]."""
  members = [scores[view] for view in views]
  tables = (
    None
    if any(column is None or isinstance(column, dict) for column in columns)
    else np.stack(columns, axis=1)  # [K, G]
    for columns in zip(*members, strict=True)
  )
  return Scores(*tables)
