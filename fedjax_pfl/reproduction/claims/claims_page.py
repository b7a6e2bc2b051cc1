"""The verdicts as Markdown: a line a claim for README, all else for docs/."""

import collections
import csv
import math
import pathlib
from collections.abc import Sequence

from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.text_table import align, markdown
from fedjax_pfl.reproduction.claims.claims_file import Term
from fedjax_pfl.reproduction.claims.verdicts import VERDICTS, Judged, Verdict
from fedjax_pfl.reproduction.compare import BEST, Compared
from fedjax_pfl.reproduction.published import footnotes_of, load
from fedjax_pfl.reproduction.table_files import (
  DIVERGED,
  FOLDER,
  marks,
  pair,
)

BRIEF = (
  *('', 'claim', 'like with like', 'as published'),
  *('its first comparison', 'ours', 'print'),
)
COMPARED = (
  *('comparison', 'like with like', 'verdict', 'as published', 'verdict'),
  'print',
)
CELLS = (
  *('cell', 'view', 'ours', 'print', 'difference'),
  *('twice the standard error', 'beyond it'),
)
SIGNED = '+.2f'
Notes = dict[str, int]  # footnotes and their numbers


def progress(folder: pathlib.Path) -> str:
  """Return how many of the published numbers the tables in a folder have."""
  number = 0
  for path in sorted((folder / FOLDER).glob('*.csv')):
    with open(path, newline='') as stream:
      rows = [*csv.DictReader(stream)]
    means = [row.get('ours_mean') for row in rows if row.get('published_mean')]
    number += sum(mean not in ('', None, DIVERGED) for mean in means)
  return f'Of {len(load()):,} published numbers {number:,} were run.'


def brief(verdicts: Sequence[Verdict]) -> str:
  """Return a table with a line for each claim, and what it took."""
  rows = []
  for verdict in verdicts:
    claim, first, printed = verdict.claim, verdict.like[0], verdict.judged[0]
    both = words_of(verdict.like), words_of(verdict.judged)
    line = (claim.name, claim.sentence, *both)
    numbers = (first.stated.sentence, our_words(first), _printed(printed))
    rows.append((*line, *numbers))
  return f'{effort(verdicts)}\n\n{markdown(BRIEF, rows)}'


def whole(verdicts: Sequence[Verdict]) -> str:
  """Return a section for each claim, and the footnotes."""
  notes: Notes = {}
  parts = [effort(verdicts)]
  parts += [_section(verdict, notes) for verdict in verdicts]
  parts += ['## Footnotes'] if notes else []
  parts += [f'[{number}] {note}' for note, number in notes.items()]
  return '\n\n'.join(parts)


def as_text(verdicts: Sequence[Verdict]) -> str:
  """Return all comparisons, one a line, for a terminal."""
  rows, lines = [COMPARED], ['']
  for verdict in verdicts:
    claim = verdict.claim
    for first, *rest in _comparison_rows(verdict):
      rows.append((f'({claim.name}) {first}', *rest))
    lines.append(f'({claim.name}) {claim.title}: {words_of(verdict.like)}')
  return '\n'.join([align(rows), *lines])


def words_of(judged: Sequence[Judged]) -> str:
  """Return '5 of 7 shown, 2 not run; one seed'."""
  known = collections.Counter(one.verdict for one in judged)
  counts = [(name, known[name]) for name in VERDICTS if known[name]]
  (name, first), *others = counts
  text = f'{first} of {len(judged)} {name}' if others else name
  text += ''.join(f', {count} {other}' for other, count in others)
  run = [len(one.measured) for one in judged if one.measured]
  return f'{text}; {seeds(min(run), max(run))}' if run else text


def effort(verdicts: Sequence[Verdict]) -> str:
  """Return what the trainings behind the verdicts took, and where."""
  found = {
    one.key: one.row
    for verdict in verdicts
    for _, compared in verdict.cells
    for one in compared.measured
  }
  if not found:
    return 'No training is behind these claims yet.'
  rows = sorted(found.values(), key=lambda row: (row['setting'], row['seed']))
  hours = sum(float(row['seconds'] or 0) for row in rows) / 3600
  machines = '; '.join(dict.fromkeys(row['machine'] for row in rows))
  machines = machines.replace(', 1 cores', ', 1 core')
  return (
    f'The claims rest on {len(rows)} trainings, which took {hours:.1f} hours '
    f'on machines that often did other work: {machines}.'
  )


# ---- A claim -----------------------------------------------------------------


def _section(verdict: Verdict, notes: Notes) -> str:
  """Return a claim: its comparisons, its cells, what differs, and commands."""
  claim = verdict.claim
  parts = [
    f'### ({claim.name}) {claim.title}',
    f'{claim.sentence}. Like with like: **{words_of(verdict.like)}.** As '
    f'published: {words_of(verdict.judged)}.',
    markdown(COMPARED, _comparison_rows(verdict), numbers=(5,)),
  ]
  cells = [
    _cell_row(term, compared, notes)
    for term, compared in verdict.cells
    if compared.measured
  ]
  if cells:
    parts.append(markdown(CELLS, cells, numbers=(4, 5)))
  pairs = (pair for one in verdict.judged for pair in one.stated.commands)
  commands = [
    f'    python experiments/reproduce.py --table={name} \\\n'
    f'        --where {where}'
    for name, where in dict.fromkeys(pairs)
  ]
  return '\n\n'.join([*parts, *_sentences(verdict), '\n'.join(commands)])


def _sentences(verdict: Verdict) -> list[str]:
  """Return what is to be said below the tables of a claim."""
  found = []
  is_beyond = any(compared.agrees is False for _, compared in verdict.cells)
  if is_beyond and verdict.claim.next:
    text = ' '.join(verdict.claim.next.split())
    found.append(f'The next experiment: {text}')
  found += [
    f'{one.sentence}: {one.unlike}.'
    for one in verdict.claim.comparisons
    if one.unlike
  ]
  return found


def _comparison_rows(verdict: Verdict) -> list[tuple[str, ...]]:
  rows = []
  for like, judged in zip(verdict.like, verdict.judged, strict=True):
    ours = our_words(judged)
    if judged.measured and not judged.stated.unlike:
      ours = 'the same'
    line = judged.stated.sentence, our_words(like), _verdict(like)
    rows.append((*line, ours, _verdict(judged), _printed(judged)))
  return rows


def _verdict(judged: Judged) -> str:
  """Return 'shown (p 0.003), 3 seeds', with Holm's p."""
  words = judged.verdict
  if judged.difference is not None:
    number = len(judged.measured)
    p = '' if math.isnan(judged.difference.p) else f' (p {judged.p:.2g})'
    words += f'{p}, {seeds(number, number)}'
  if judged.diverged:
    others = ' with other seeds' * (judged.difference is not None)
    words += f': diverged{others} ({", ".join(judged.diverged)})'
  return words


def _cell_row(term: Term, compared: Compared, notes: Notes) -> tuple[str, ...]:
  ours, published = compared.ours, term.cell.published
  printed = 'lost'
  if term.is_printed:
    printed = pair(published.mean, published.std)
    printed += marks(footnotes_of(published), notes)
  # Of a family of views: those that were its best with each seed.
  view = ', '.join(dict.fromkeys(one.view for one in compared.measured))
  if term.cell.reading.view.endswith(BEST):
    view += ' (best by tests)'
  seeds = f' ({len(ours.seeds)} seeds)' if len(ours.seeds) > 1 else ''
  return (
    _label(term),
    view,
    pair(ours.mean, ours.std) + seeds,
    printed,
    format_number(compared.difference, SIGNED),
    format_number(compared.tolerance, '.2f'),
    {True: 'no', False: 'yes', None: ''}[compared.agrees],
  )


def seeds(fewest: int, most: int) -> str:
  """Return 'one seed', '3 seeds' or, of several comparisons, '1 to 3 seeds'."""
  if fewest < most:
    return f'{fewest} to {most} seeds'
  return 'one seed' if most == 1 else f'{most} seeds'


def our_words(judged: Judged) -> str:
  """Return '+5.12 (3.10 to 7.14)'; 'FedBABU 66.74 alone, print 66.32'; ''."""
  one = judged.difference
  if one is not None:
    ends = f' ({one.low:.2f} to {one.high:.2f})' if one.has_interval else ''
    return f'{one.mean:{SIGNED}}{ends}'
  alone = []
  for term, compared in judged.cells:
    if compared.ours:
      text = f'{term.name} {compared.ours.mean:.2f} alone'
      if term.is_printed:
        text += f', print {term.cell.published.mean:.2f}'
      alone.append(text)
  return '; '.join(alone)


def _printed(judged: Judged) -> str:
  """Return '+6.70', marked where print itself is against the claim."""
  if judged.printed is None:
    return 'lost'
  mean, _ = judged.printed
  return f'{mean:{SIGNED}}' + ', against it' * (mean <= 0)


def _label(term: Term) -> str:
  """Return 'FedBABU' with its parts of the table's row, as 's=2'."""
  published = term.cell.published
  parts = [term.name]
  if published.shards_per_client is not None:
    parts.append(f's={published.shards_per_client}')
  parts += [f'{name}={value}' for name, value in published.variant.items()]
  if published.metric == 'initial_accuracy_without_head':
    parts.append('without head')
  return ' '.join(parts)
