"""Rows of tables about claims, and the words in them."""

from collections.abc import Iterable, Sequence

from fedjax_pfl.reproduction.claims.entries import Term
from fedjax_pfl.reproduction.claims.intervals import (
  OVER_IMAGES,
  OVER_SEEDS,
  PAIRED,
  UNPAIRED,
)
from fedjax_pfl.reproduction.claims.numbers import BEST
from fedjax_pfl.reproduction.claims.verdicts import (
  NOT_RUN,
  Beside,
  Judged,
  Verdict,
)
from fedjax_pfl.reproduction.output.run_summary import Row
from fedjax_pfl.reproduction.published import footnote

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


def comparison_cells(judged: Judged) -> tuple[str, ...]:
  """Return the cells of the row of a comparison."""
  words = judged.verdict
  if judged.measured:
    words += f', {seeds_of(judged)}'
  elif judged.diverged:
    words += f': diverged ({", ".join(judged.diverged)})'
  return (
    judged.stated.sentence,
    ours_of(judged, with_interval=False),
    interval_of(judged),
    printed_of(judged),
    words,
  )


def cell_cells(beside: Beside, notes: Notes) -> tuple[str, ...]:
  """Return the cells of the row of a published number."""
  term, comparison = beside.term, beside.comparison
  ours, published = comparison.ours, term.cell.published
  printed = 'lost'
  if term.is_printed:
    printed = pair(published.mean, published.std)
    if note := footnote(published):
      printed += f' [{notes.setdefault(note, len(notes) + 1)}]'
  seeds = f' ({len(ours.seeds)} seeds)' if len(ours.seeds) > 1 else ''
  beyond = {True: 'no', False: 'yes', None: ''}[comparison.agrees]
  return (
    label_of(term),
    view_of(beside),
    pair(ours.mean, ours.std) + seeds,
    printed,
    signed(comparison.difference),
    '' if comparison.tolerance is None else f'{comparison.tolerance:.2f}',
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
  run = [seeds_of(one) for one in verdict.judged if one.verdict != NOT_RUN]
  return '; '.join([text, ' or '.join(dict.fromkeys(run))] if run else [text])


def seeds_of(judged: Judged) -> str:
  """Return 'one seed' or '3 seeds'."""
  number = len(judged.measured)
  return 'one seed' if number == 1 else f'{number} seeds'


def ours_of(judged: Judged, *, with_interval: bool = True) -> str:
  """Return '+5.12 (3.10 to 7.14)', or ''."""
  if judged.difference is None:
    return ''
  text = signed(judged.difference)
  if judged.interval is None or not with_interval:
    return text
  return f'{text} ({judged.interval.low:.2f} to {judged.interval.high:.2f})'


def interval_of(judged: Judged) -> str:
  """Return '3.10 to 7.14, unpaired', or ''."""
  one = judged.interval
  if one is None:
    return 'none' if judged.measured else ''
  return f'{one.low:.2f} to {one.high:.2f}, {KINDS[one.kind]}'


def printed_of(judged: Judged) -> str:
  """Return '+6.70', marked where print itself is against the claim."""
  if judged.printed is None:
    return 'lost'
  text = signed(judged.printed.difference)
  return text if judged.printed.difference > 0 else f'{text}, against it'


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


def table(
  head: Sequence[str],
  rows: Iterable[Sequence[str]],
  numbers: Sequence[int] = (),
) -> str:
  """Return a Markdown table; columns of `numbers` are aligned right."""
  marks = ['---:' if at in numbers else '---' for at in range(len(head))]
  lines = [head, marks, *rows]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)
