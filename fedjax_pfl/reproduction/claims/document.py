"""The verdicts as Markdown: a line a claim for README, all else for docs/."""

import csv
import pathlib
from collections.abc import Sequence

from fedjax_pfl.evaluation.differences import (
  OVER_IMAGES,
  OVER_SEEDS,
  PAIRED,
  UNPAIRED,
)
from fedjax_pfl.report.text_table import align
from fedjax_pfl.reproduction.claims.entries import Term
from fedjax_pfl.reproduction.claims.verdicts import (
  BEST,
  Beside,
  Judged,
  Measured,
  Verdict,
  differing,
)
from fedjax_pfl.reproduction.comparison_table import DIVERGED, FOLDER, markdown
from fedjax_pfl.reproduction.published import footnote, load
from fedjax_pfl.reproduction.summary import Row

BRIEF = ('', 'claim', 'verdict', 'its first comparison', 'ours', 'print')
RUNS = ('run', 'seed', 'commit', 'machine', 'hours', 'score of each client')
KINDS = {
  OVER_SEEDS: 'over seeds',
  PAIRED: 'paired',
  UNPAIRED: 'unpaired',
  OVER_IMAGES: 'over test images',
}
COMPARED = ('comparison', 'ours', '95 % interval', 'print', 'verdict')
CELLS = (
  *('cell', 'view', 'ours', 'print', 'difference'),
  *('twice the standard error', 'beyond it'),
)
Notes = dict[str, int]  # footnotes and their numbers


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
  return f'{effort(verdicts)}\n\n{markdown(BRIEF, rows)}'


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
    markdown(COMPARED, map(comparison_cells, verdict.judged), numbers=(1, 3)),
  ]
  run = [one for one in verdict.cells if one.measured]
  if run:
    cells = [cell_cells(one, notes) for one in run]
    parts.append(markdown(CELLS, cells, numbers=(4, 5)))
  parts += sentences(verdict)
  return '\n\n'.join([*parts, commands(verdict)])


def sentences(verdict: Verdict) -> list[str]:
  """Return what is to be said below the tables of a claim."""
  found = []
  if beyond := differing(verdict):
    names = ', '.join(
      f'{label_of(one.term)} {signed(one.compared.difference)}'
      for one in beyond
    )
    found.append(
      f'Ours differs from print by more than twice the standard error: {names}.'
    )
    if verdict.claim.next:
      text = ' '.join(verdict.claim.next.split())
      found.append(f'The next experiment: {text}')
  kinds = {one.difference.kind for one in verdict.judged if one.difference}
  if UNPAIRED in kinds:
    gone = (
      one.term.name
      for one in verdict.cells
      if any(measured.score.clients is None for measured in one.measured)
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
  return f'{text}\n\n{markdown(RUNS, rows, numbers=(1, 4))}'


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


# ---- Rows and words ----------------------------------------------------------


def comparison_cells(judged: Judged) -> tuple[str, ...]:
  """Return the cells of the row of a comparison."""
  words = judged.verdict
  if judged.measured:
    words += f', {seeds_of(judged)}'
  elif judged.diverged:
    words += f': diverged ({", ".join(judged.diverged)})'
  return (
    judged.stated.sentence,
    signed(judged.difference.mean) if judged.difference else ours_of(judged),
    interval_of(judged),
    printed_of(judged),
    words,
  )


def cell_cells(beside: Beside, notes: Notes) -> tuple[str, ...]:
  """Return the cells of the row of a published number."""
  term, compared = beside.term, beside.compared
  ours, published = compared.ours, term.cell.published
  printed = 'lost'
  if term.is_printed:
    printed = pair(published.mean, published.std)
    if note := footnote(published):
      printed += f' [{notes.setdefault(note, len(notes) + 1)}]'
  seeds = f' ({len(ours.seeds)} seeds)' if len(ours.seeds) > 1 else ''
  beyond = {True: 'no', False: 'yes', None: ''}[compared.agrees]
  return (
    label_of(term),
    view_of(beside),
    pair(ours.mean, ours.std) + seeds,
    printed,
    signed(compared.difference),
    '' if compared.tolerance is None else f'{compared.tolerance:.2f}',
    beyond,
  )


def view_of(beside: Beside) -> str:
  """Return the view; of a family, those that were its best with each seed."""
  views = dict.fromkeys(one.view for one in beside.measured)
  is_best = beside.term.cell.reading.view.endswith(BEST)
  return ', '.join(views) + (' (best by tests)' if is_best else '')


def words_of(verdict: Verdict) -> str:
  """Return '5 of 7 shown, 2 not run; one seed'."""
  counts, number = verdict.counts, len(verdict.judged)
  if len(counts) == 1:
    text = next(iter(counts))
  else:
    (name, first), *others = counts.items()
    text = f'{first} of {number} {name}'
    text += ''.join(f', {count} {other}' for other, count in others)
  run = [seeds_of(one) for one in verdict.judged if one.measured]
  return '; '.join([text, ' or '.join(dict.fromkeys(run))] if run else [text])


def seeds_of(judged: Judged) -> str:
  """Return 'one seed' or '3 seeds'."""
  number = len(judged.measured)
  return 'one seed' if number == 1 else f'{number} seeds'


def ours_of(judged: Judged) -> str:
  """Return '+5.12 (3.10 to 7.14)'; 'FedBABU 66.74 alone, print 66.32'; ''."""
  if judged.difference is None:
    return '; '.join(map(_alone, judged.alone))
  text = signed(judged.difference.mean)
  if not judged.difference.has_interval:
    return text
  return f'{text} ({judged.difference.low:.2f} to {judged.difference.high:.2f})'


def _alone(beside: Beside) -> str:
  """Return our number of a cell whose comparison is half run."""
  text = f'{beside.term.name} {beside.compared.ours.mean:.2f} alone'
  if not beside.term.is_printed:
    return text
  return f'{text}, print {beside.term.cell.published.mean:.2f}'


def interval_of(judged: Judged) -> str:
  """Return '3.10 to 7.14, unpaired', or ''."""
  one = judged.difference
  if one is None:
    return ''
  if not one.has_interval:
    return 'none'
  return f'{one.low:.2f} to {one.high:.2f}, {KINDS[one.kind]}'


def printed_of(judged: Judged) -> str:
  """Return '+6.70', marked where print itself is against the claim."""
  if judged.printed is None:
    return 'lost'
  text = signed(judged.printed.mean)
  return text if judged.printed.mean > 0 else f'{text}, against it'


def label_of(term: Term) -> str:
  """Return 'FedBABU' with its parts of the table's row, as 's=2'."""
  published = term.cell.published
  parts = [term.name]
  if published.shards_per_client is not None:
    parts.append(f's={published.shards_per_client}')
  parts += [f'{name}={value}' for name, value in published.variant.items()]
  if published.metric == 'initial_accuracy_without_head':
    parts.append('without head')
  return ' '.join(parts)


def pair(mean: float, std: float | None) -> str:
  return f'{mean:.2f}' if std is None else f'{mean:.2f} ± {std:.2f}'


def signed(value: float | None) -> str:
  return '' if value is None else f'{value:+.2f}'


def hours_of(row: Row) -> float:
  return float(row['seconds'] or 0) / 3600


def commit_of(row: Row) -> str:
  """Return seven digits of the commit; + after changes that it lacks."""
  number, dirty, _ = row['commit'].partition('-dirty')
  return number[:7] + ('+' if dirty else '')
