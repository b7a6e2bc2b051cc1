"""The verdicts as Markdown: a line a claim for README, all else for docs/."""

import csv
import pathlib
from collections.abc import Sequence

from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.claims.intervals import UNPAIRED
from fedjax_pfl.reproduction.claims.numbers import Measured
from fedjax_pfl.reproduction.claims.rows import (
  CELLS,
  COMPARED,
  Notes,
  cell_cells,
  commit_of,
  comparison_cells,
  hours_of,
  label_of,
  ours_of,
  printed_of,
  signed,
  table,
  words_of,
)
from fedjax_pfl.reproduction.claims.verdicts import Verdict, differing
from fedjax_pfl.reproduction.output.comparison_table import DIVERGED, FOLDER
from fedjax_pfl.reproduction.published import load

BRIEF = ('', 'claim', 'verdict', 'its first comparison', 'ours', 'print')
RUNS = ('run', 'seed', 'commit', 'machine', 'hours', 'score of each client')


def progress(folder: pathlib.Path) -> str:
  """Return how many of the published numbers the tables in a folder have."""
  number = 0
  for path in sorted((folder / FOLDER).glob('*.csv')):
    with open(path, newline='') as stream:
      rows = csv.DictReader(stream)
      number += sum(
        row.get('ours_mean', '') not in ('', DIVERGED) for row in rows
      )
  return f'Of {len(load()):,} published numbers {number:,} were run.'


def brief(verdicts: Sequence[Verdict]) -> str:
  """Return a table with a line for each claim, and what it took."""
  rows = []
  for verdict in verdicts:
    first = verdict.judged[0]
    rows.append(
      (
        verdict.claim.name,
        verdict.claim.sentence,
        words_of(verdict),
        first.stated.sentence,
        ours_of(first),
        printed_of(first),
      )
    )
  return f'{effort(verdicts)}\n\n{table(BRIEF, rows)}'


def whole(verdicts: Sequence[Verdict]) -> str:
  """Return a section for each claim, all runs, and the footnotes."""
  notes: Notes = {}
  parts = [effort(verdicts)]
  parts += [section(verdict, notes) for verdict in verdicts]
  parts += ['## Runs behind them', runs(verdicts)]
  if notes:
    parts.append('## Footnotes')
  parts += [f'[{number}] {note}' for note, number in notes.items()]
  return '\n\n'.join(parts)


def as_text(verdicts: Sequence[Verdict]) -> str:
  """Return all comparisons, one a line, for a terminal."""
  rows = [
    (f'({verdict.claim.name}) {first}', *rest)
    for verdict in verdicts
    for first, *rest in map(comparison_cells, verdict.judged)
  ]
  lines = [
    f'({one.claim.name}) {one.claim.title}: {words_of(one)}' for one in verdicts
  ]
  return '\n'.join([align([COMPARED, *rows]), '', *lines])


def section(verdict: Verdict, notes: Notes) -> str:
  """Return a claim: its comparisons, its cells, what differs, and commands."""
  claim = verdict.claim
  parts = [
    f'### ({claim.name}) {claim.title}',
    f'{claim.sentence}. **{words_of(verdict).capitalize()}.**',
    table(COMPARED, map(comparison_cells, verdict.judged), numbers=(1, 3)),
  ]
  run = [one for one in verdict.cells if one.measured]
  if run:
    cells = [cell_cells(one, notes) for one in run]
    parts.append(table(CELLS, cells, numbers=(4, 5)))
  parts += sentences(verdict)
  return '\n\n'.join([*parts, commands(verdict)])


def sentences(verdict: Verdict) -> list[str]:
  """Return what is to be said below the tables of a claim."""
  found = []
  if beyond := differing(verdict):
    names = ', '.join(
      f'{label_of(one.term)} {signed(one.comparison.difference)}'
      for one in beyond
    )
    found.append(
      f'Ours differs from print by more than twice the standard error: {names}.'
    )
    if verdict.claim.next:
      text = ' '.join(verdict.claim.next.split())
      found.append(f'The next experiment: {text}')
  kinds = {judged.interval.kind for judged in verdict.judged if judged.interval}
  if UNPAIRED in kinds:
    gone = (
      one.term.name
      for one in verdict.cells
      if any(measured.number.clients is None for measured in one.measured)
    )
    names = ', '.join(dict.fromkeys(gone))
    found.append(
      f'Of {names} only the mean and the deviation are left in '
      'results/summary.csv, not the score of each client: their intervals are '
      'unpaired, thus wider.'
    )
  return found


def commands(verdict: Verdict) -> str:
  """Return the commands that give the numbers of a claim."""
  pairs = (pair for one in verdict.judged for pair in one.stated.commands)
  lines = [
    f'    python experiments/reproduce.py --table={name} \\\n'
    f'        --where {where}'
    for name, where in dict.fromkeys(pairs)
  ]
  return '\n'.join(lines)


def runs(verdicts: Sequence[Verdict]) -> str:
  """Return a table of all trainings behind the verdicts, each once."""
  rows = [
    (
      one.row['setting'],
      one.row['seed'],
      f'`{commit_of(one.row)}`',
      one.row['machine'],
      f'{hours_of(one.row):.1f}',
      f'results/runs/{one.run.name}' if one.run else 'not kept',
    )
    for one in trainings(verdicts)
  ]
  text = 'The command of each is in its row of results/summary.csv.'
  return f'{text}\n\n{table(RUNS, rows, numbers=(1, 4))}'


def effort(verdicts: Sequence[Verdict]) -> str:
  """Return what the trainings behind the verdicts took, and where."""
  found = trainings(verdicts)
  if not found:
    return 'No training is behind these claims yet.'
  hours = sum(hours_of(one.row) for one in found)
  machines = '; '.join(dict.fromkeys(one.row['machine'] for one in found))
  return (
    f'{len(found)} trainings of {hours:.1f} hours in all, often beside other '
    f'work, are behind these claims: {machines}.'
  )


def trainings(verdicts: Sequence[Verdict]) -> list[Measured]:
  """Return the trainings behind the verdicts, each once, by name and seed."""
  found = {
    one.key: one
    for verdict in verdicts
    for beside in verdict.cells
    for one in beside.measured
  }
  return sorted(
    found.values(), key=lambda one: (one.row['setting'], int(one.row['seed']))
  )
