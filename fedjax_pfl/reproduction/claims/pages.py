"""A report page for each claim, of the run directories that are committed."""

import pathlib
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report import page
from fedjax_pfl.report.page.summary_tables import Printed
from fedjax_pfl.report.page.tables import Cell, Column, Table, make_table
from fedjax_pfl.reproduction.claims import document
from fedjax_pfl.reproduction.claims.figures import (
  client_lines,
  differences_of,
  has_pairs,
)
from fedjax_pfl.reproduction.claims.verdicts import Judged, Verdict
from fedjax_pfl.reproduction.published import footnotes_of
from fedjax_pfl.reproduction.published_for_run import PAPERS
from fedjax_pfl.runs import run_dir

NAME = 'claim_{}.html'
# A difference, its interval, print and the verdict are texts.
COLUMNS = tuple(
  Column(name.capitalize(), is_number=name in ('ours', 'print'))
  for name in document.COMPARED
)


def save_pages(
  verdicts: Sequence[Verdict], folder: pathlib.Path
) -> list[pathlib.Path]:
  """Write the page of every claim of which a run directory is there."""
  return [
    page.save(
      runs_of(verdict),
      folder / NAME.format(verdict.claim.name),
      published_of(verdict),
      opening_of(verdict),
    )
    for verdict in verdicts
    if runs_of(verdict)
  ]


def runs_of(verdict: Verdict) -> list[pathlib.Path]:
  """Return the run directories of the cells of a claim, each once."""
  runs = (one.run for beside in verdict.cells for one in beside.measured)
  return list(dict.fromkeys(run for run in runs if run))


def published_of(verdict: Verdict) -> dict[str, Printed]:
  """Return the printed numbers of the views of the runs of a claim."""
  found: dict[str, Printed] = {}
  for beside in verdict.cells:
    published, reading = beside.term.cell.published, beside.term.cell.reading
    if not beside.term.is_printed or reading.measure != 'accuracy':
      continue
    table = f'{PAPERS[published.paper]}, Table {published.table}'
    number = published.mean, published.std, table, footnotes_of(published)
    for one in beside.measured:
      # Of an evaluation of its own the page has no number.
      if one.run and reading.view in run_dir.load_result(one.run)['views']:
        found.setdefault(str(one.run), {})[reading.view] = number
  return found


def opening_of(verdict: Verdict) -> page.Opening:
  """Return what the page begins with: the claim and its verdicts."""
  claim = verdict.claim
  words = document.words_of(verdict).capitalize()
  sentence = f'{claim.sentence}. {words}.'
  pairs = [_pair(one) for one in verdict.judged if has_pairs(one)]
  return page.Opening(
    f'({claim.name}) {claim.title}', sentence, _table(verdict), pairs
  )


def _table(verdict: Verdict) -> Table:
  lines = [
    [Cell(text, text or None) for text in document.comparison_cells(one)]
    for one in verdict.judged
  ]
  return make_table(
    'Comparisons',
    COLUMNS,
    lines,
    (
      'Differences in points of accuracy. Shown: all of the 95 % interval is '
      'above 0.',
      *document.sentences(verdict),
    ),
  )


def _pair(judged: Judged) -> page.Pair:
  first, second = (
    np.concatenate([seed[at].score.clients for seed in judged.measured])
    for at in (0, 1)
  )
  names = [
    f'seed {seed}, client {client}'
    for _, seed, client, _ in client_lines(judged)
  ]
  values = differences_of(judged)
  note = (
    f'{(values > 0).sum():,} of {values.size:,} clients above 0, '
    f'{(values < 0).sum():,} below; mean {values.mean():+.1f}.'
  )
  lower = judged.stated.terms[1]
  return page.Pair(
    judged.stated.sentence.replace(' > ', ' less '),
    lower.cell.settings['algorithm'],
    first,
    second,
    names,
    note,
  )
