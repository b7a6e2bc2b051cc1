"""The table of the rounds that may be chosen: last, by validation, by tests."""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report import selections
from fedjax_pfl.report.page.groups import Group
from fedjax_pfl.report.page.table_cells import (
  NONE,
  Cell,
  Column,
  Table,
  make_table,
  mean,
  number,
)
from fedjax_pfl.report.page.tables import METHOD, name_cell

COLUMNS = (
  METHOD,
  Column('Last', best='max'),
  Column('Validation', best='max'),
  Column('Test best', 'no main number'),
  Column('Chosen', 'round, view', is_number=False),
  Column('On validation', 'examples'),
  Column('Result', 'select', is_number=False),
)
NOTES = (
  'Accuracy on the tests after personalisation, mean ± standard deviation over '
  'clients, of the last round, of the round with the best mean accuracy on '
  'validation examples, and of the round with the best accuracy on the tests. '
  'The last of these is optimistic; it is there where eval_views has the view.',
)


def choices(groups: Sequence[Group]) -> Table | None:
  """Return a row for each group that keeps examples for choosing, or None."""
  groups = [
    group
    for group in groups
    if all(selections.has_choice(run.result) for run in group.runs)
  ]
  if not groups:
    return None
  rows = [_row(group) for group in groups]
  return make_table('The round by validation', COLUMNS, rows, NOTES)


def _row(group: Group) -> list[Cell]:
  results = [run.result for run in group.runs]
  chosen = [result['validation'] for result in results]
  words = dict.fromkeys(f'{one["round"]}, {one["view"]}' for one in chosen)
  on_validation = [one['validation_accuracy'] for one in chosen]
  select = results[0]['select']
  return [
    name_cell(group),
    *(_accuracy(results, kind) for kind in selections.KINDS),
    Cell('; '.join(words), chosen[0]['round']),
    mean(np.array(on_validation)),
    Cell(select, select),
  ]


def _accuracy(results: Sequence[dict], kind: str) -> Cell:
  """Return the mean over seeds, ± that of the deviations over clients."""
  found = [selections.summaries(result)[kind] for result in results]
  if any(summary is None or summary['mean'] is None for summary in found):
    return Cell(NONE)
  means = np.array([summary['mean'] for summary in found])
  spread = np.mean([summary['std'] for summary in found])
  below = ()
  if len(means) > 1:
    below = (f'{len(means)} seeds: {means.min():.2f} to {means.max():.2f}',)
  return number(means.mean(), f'{{:.2f}} ± {spread:.2f}', below)
