"""Cells of plain text in columns, and numbers and times as text."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fedjax_pfl.evaluation.measures import ACCURACY, Measure


def align(rows: Sequence[tuple[str, ...]]) -> str:
  """Return rows of cells in columns, the first row as their heads."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rule = tuple('-' * width for width in widths)
  lines = []
  for first, *rest in (rows[0], rule, *rows[1:]):
    cells = [first.ljust(widths[0])]
    cells += [c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)]
    lines.append('  '.join(cells))
  return '\n'.join(lines)


def markdown(
  head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection = ()
) -> str:
  """Return a Markdown table; columns of `numbers` are aligned right."""
  marks = ['---:' if at in numbers else '---' for at in range(len(head))]
  lines = [head, marks, *rows]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def duration(seconds: float) -> str:
  """Return a time in fitting units: '80 s', '12 min', '1 h 09 min'."""
  minutes = round(seconds / 60)
  if seconds < 120:
    return f'{seconds:.0f} s'
  if minutes < 120:
    return f'{minutes} min'
  return f'{minutes // 60} h {minutes % 60:02d} min'


def mean_and_std(
  summary: Mapping[str, Any] | None, measure: Measure = ACCURACY
) -> str:
  """Return 'mean ± std'; '-' where there is no such view or no number."""
  mean = measure.short(summary and summary['mean'])
  if measure != ACCURACY and mean != '-':
    return f'{mean} ± {measure.short(summary["std"])}'
  return mean if mean == '-' else f'{mean} ± {summary["std"]:4.1f}'


def decimal(value: float | None, form: str = '.1f') -> str:
  return '-' if value is None or math.isnan(value) else format(value, form)
