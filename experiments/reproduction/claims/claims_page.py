"""The verdicts as Markdown, for docs/results.md: a line a claim, then each."""

import collections
import csv
import math
from collections.abc import Sequence
from pathlib import Path

from experiments.reproduction.claims.verdicts import VERDICTS, Judged, Verdict
from experiments.reproduction.published import load
from experiments.reproduction.table_files import DIVERGED, FOLDER
from fedjax_pfl.results.runs.folder import machine_of
from fedjax_pfl.results.statistics.differences import LEVEL
from fedjax_pfl.results.tables.table import align, markdown

BRIEF = '', 'claim', 'verdicts', 'its first comparison', 'ours', 'published'
COMPARED = 'comparison', 'difference', 'verdict', 'published'
SIGNED = '+.2f'


def progress(folder: Path) -> str:
  """Return how many of the published numbers the tables in a folder have."""
  number = 0
  for path in sorted((folder / FOLDER).glob('*.csv')):
    with open(path, newline='') as stream:
      rows = [*csv.DictReader(stream)]
    means = [row.get('ours_mean') for row in rows if row.get('published_mean')]
    number += sum(mean not in ('', None, DIVERGED) for mean in means)
  return f'Of {len(load()):,} published numbers {number:,} were run.'


def brief(verdicts: Sequence[Verdict]) -> str:
  """Return a table with a line for each claim, like with like."""
  rows = []
  for verdict in verdicts:
    claim, first, published = verdict.claim, verdict.like[0], verdict.judged[0]
    line = f'({claim.name})', claim.sentence, words_of(verdict.like)
    line += first.stated.sentence, our_words(first), _published(published)
    rows.append(line)
  return markdown(BRIEF, rows)


def whole(verdicts: Sequence[Verdict]) -> str:
  """Return the table of claims, then a section for each."""
  parts = effort(verdicts), brief(verdicts), *map(_section, verdicts)
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
  known = collections.Counter(x.verdict for x in judged)
  counts = [(name, known[name]) for name in VERDICTS if known[name]]
  (name, first), *others = counts
  text = f'{first} of {len(judged)} {name}' if others else name
  text += ''.join(f', {count} {other}' for other, count in others)
  run = [len(x.measured) for x in judged if x.measured]
  return f'{text}; {seeds(min(run), max(run))}' if run else text


def effort(verdicts: Sequence[Verdict]) -> str:
  """Return what the trainings behind the verdicts took, and where."""
  run_of = {
    measured.training.key: measured.training.run
    for verdict in verdicts
    for judged in (*verdict.judged, *verdict.like)
    for _, compared in judged.cells
    for measured in compared.measured
  }
  if not run_of:
    return 'No training is behind these claims yet.'
  runs = sorted(run_of.values(), key=lambda run: run.path)
  hours = sum(run.result['seconds'] for run in runs) / 3600
  machines = '; '.join(dict.fromkeys(machine_of(run.record) for run in runs))
  machines = machines.replace(', 1 cores', ', 1 core')
  return (
    f'{len(runs)} trainings were compared, which took {hours:.1f} hours on '
    f'machines that often did other work: {machines}.'
  )


# ---- A claim -----------------------------------------------------------------


def _section(verdict: Verdict) -> str:
  """Return a claim: its comparisons, what differs in views, and commands."""
  claim = verdict.claim
  pairs = (pair for x in verdict.judged for pair in x.stated.commands)
  commands = [
    f'    fedjax-pfl reproduce --table={name} \\\n        --where {where}'
    for name, where in dict.fromkeys(pairs)
  ]
  table = markdown(COMPARED, _comparison_rows(verdict), numbers=(3,))
  parts = [f'### ({claim.name}) {claim.title}', table]
  parts += [f'{x.sentence}: {x.unlike}.' for x in claim.comparisons if x.unlike]
  return '\n\n'.join([*parts, '\n'.join(commands)])


def _comparison_rows(verdict: Verdict) -> list[tuple[str, ...]]:
  """Return a row for each, and one more where a paper compares unlike views."""
  rows = []
  for like, judged in zip(verdict.like, verdict.judged, strict=True):
    name, printed = judged.stated.sentence, _published(judged)
    is_twice = bool(judged.measured and judged.stated.unlike)
    row = (name, our_words(like), _verdict(like))
    rows.append((*row, printed * (not is_twice)))
    if is_twice:
      name = f'{name}, as published'
      rows.append((name, our_words(judged), _verdict(judged), printed))
  return rows


def _verdict(judged: Judged) -> str:
  """Return 'shown (p 0.003), 3 seeds', with Holm's p."""
  text = judged.verdict
  if judged.difference is not None:
    number = len(judged.measured)
    digits = 3 if round(judged.p, 2) == LEVEL else 2  # on one side of 0.05
    p = f' (p {judged.p:.{digits}g})' * (not math.isnan(judged.difference.p))
    text += f'{p}, {seeds(number, number)}'
    if number := len(judged.added):
      text += f'; {our_words(judged.with_added())} with {number} added'
  if judged.diverged:
    others = ' with other seeds' * (judged.difference is not None)
    text += f': diverged{others} ({", ".join(judged.diverged)})'
  return text


def seeds(fewest: int, most: int) -> str:
  """Return 'one seed', '3 seeds' or, of several comparisons, '1 to 3 seeds'."""
  if fewest < most:
    return f'{fewest} to {most} seeds'
  return 'one seed' if most == 1 else f'{most} seeds'


def our_words(judged: Judged) -> str:
  """Return '+5.12 (3.10 to 7.14)'; 'FedBABU 66.74 alone, ..'; ''."""
  if gap := judged.difference:
    ends = f' ({gap.low:.2f} to {gap.high:.2f})' * gap.has_interval
    return f'{gap.mean:{SIGNED}}{ends}'
  alone = []
  for term, compared in judged.cells:
    if compared.ours:
      text = f'{term.name} {compared.ours.mean:.2f} alone'
      if term.is_printed:
        text += f', published {term.cell.published.mean:.2f}'
      alone.append(text)
  return '; '.join(alone)


def _published(judged: Judged) -> str:
  """Return '+6.70', marked where the paper's number is against the claim."""
  if judged.printed is None:
    return 'lost'
  mean, _ = judged.printed
  return f'{mean:{SIGNED}}' + ', against it' * (mean <= 0)
