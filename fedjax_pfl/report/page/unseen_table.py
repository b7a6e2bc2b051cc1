"""The table of clients who came after training, beside those who took part."""

from collections.abc import Callable, Sequence

import numpy as np

from fedjax_pfl.report.page.groups import (
  Group,
  Views,
  before_and_after,
  numbers,
  numbers_of_unseen,
)
from fedjax_pfl.report.page.table_cells import (
  NONE,
  Cell,
  Column,
  Table,
  make_table,
  mean,
)
from fedjax_pfl.report.page.tables import METHOD, name_cell

COLUMNS = (
  METHOD,
  Column('Took part', 'before', best='max'),
  Column('Took part', 'after', best='max'),
  Column('Unseen', 'before', best='max'),
  Column('Unseen', 'after', best='max'),
  Column('Difference', 'after, points'),
  Column('Worst tenth', 'took part', best='max'),
  Column('Worst tenth', 'unseen', best='max'),
  Column('Unseen', 'clients'),
)
NOTES = (
  'Mean accuracy over clients in percent, before and after personalisation. '
  'Unseen clients are drawn by the seed, take part in no round, and begin with '
  'what the server has at the end; none of the other tables has them. '
  'Difference: unseen less those who took part, on other tests.',
)


def unseen_clients(groups: Sequence[Group]) -> Table | None:
  """Return a row for each group with unseen clients, or None."""
  rows = [
    _row(group)
    for group in groups
    if all('unseen' in run.result for run in group.runs)
  ]
  if not rows:
    return None
  return make_table('Clients who came after training', COLUMNS, rows, NOTES)


def _row(group: Group) -> list[Cell]:
  before, after = before_and_after(group)

  def cell(views: Views | None, numbers_fn: Callable, quantity: str) -> Cell:
    if views is None:
      return Cell(NONE)
    return mean(numbers_fn(group, views, quantity))

  sides = numbers, numbers_of_unseen
  means = [numbers_fn(group, after, 'mean') for numbers_fn in sides]
  counts = numbers_of_unseen(group, after, 'num_clients')
  return [
    name_cell(group),
    *(cell(view, side, 'mean') for side in sides for view in (before, after)),
    mean(np.subtract(*means[::-1]), '{:+.2f}'),
    *(cell(after, side, 'worst_decile') for side in sides),
    mean(counts, '{:,.0f}'),
  ]
