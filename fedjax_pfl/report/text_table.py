"""Results and other rows as a table of plain text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_pfl.report.names import display_name


def table(results: Sequence[Mapping[str, Any]]) -> str:
  """Return results (as of result.json) as a table of plain text.

  >>> initial = {'mean': 62.1, 'std': 11.4}
  >>> views = {'initial': initial, 'finetuned': {'mean': 85.0, 'std': 7.3}}
  >>> print(table([dict(algorithm='fedbabu', views=views, seconds=41.2)]))
  algorithm      initial    finetuned  seconds
  ---------  -----------  -----------  -------
  FedBABU    62.1 ± 11.4  85.0 ±  7.3     41.2

  Of fine-tuning with several stops the last is shown, 'finetuned'. Where a
  result has it, 'global' is the accuracy of the one global model on
  the whole test set. A note below says how many clients are left out of means.
  """
  views = list(dict.fromkeys(view for one in results for view in one['views']))
  if 'finetuned' in views:
    views = [view for view in views if not view.startswith('finetuned_')]
  has_global = any('global' in one for one in results)
  rows = [('algorithm', *views, *['global'] * has_global, 'seconds')]
  for one in results:
    cells = [cell(one['views'].get(view)) for view in views]
    cells += [_global_cell(one.get('global'))] * has_global
    name = display_name(one['algorithm'])
    rows.append((name, *cells, f'{one["seconds"]:.1f}'))
  return '\n'.join([align(rows), *_notes(results)])


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


def _notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
  """Return a line for every result that leaves out clients."""
  lines = []
  for one in results:
    parts = [view.get('num_left_out', 0) for view in one['views'].values()]
    if out := max(parts, default=0):
      lines.append(
        f'{display_name(one["algorithm"])}: clients left out of the means, for '
        f'want of training or test examples: {out:,}'
      )
  return lines


def _global_cell(numbers: Mapping[str, Any] | None) -> str:
  if numbers is None or numbers['accuracy'] is None:
    return '-'
  return f'{numbers["accuracy"]:.1f}'


def cell(summary: Mapping[str, Any] | None) -> str:
  """Return 'mean ± std'; '-' where a method has no such view or no number."""
  if summary is None or summary['mean'] is None or math.isnan(summary['mean']):
    return '-'
  return f'{summary["mean"]:.1f} ± {summary["std"]:4.1f}'
