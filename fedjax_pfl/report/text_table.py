"""Tables of plain text, of results and of other rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_pfl.evaluation.own_metrics import TAKEN
from fedjax_pfl.report.finished_runs import KINDS, summaries_by_choice
from fedjax_pfl.report.styles import display_name

TEST_BEST = (
  'test_best is chosen by the tests, which is optimistic; - without its view '
  'in eval_views'
)


def table(results: Sequence[Mapping[str, Any]]) -> str:
  """Return results (as of result.json) as a table of plain text.

  >>> initial = {'mean': 62.1, 'std': 11.4}
  >>> views = {'initial': initial, 'finetuned': {'mean': 85.0, 'std': 7.3}}
  >>> print(table([dict(algorithm='fedbabu', views=views, seconds=41.2)]))
  algorithm      initial    finetuned  seconds
  ---------  -----------  -----------  -------
  FedBABU    62.1 ± 11.4  85.0 ±  7.3     41.2

  Of several lengths of fine-tuning the last is shown, 'finetuned'. 'global' is
  the accuracy of the global model on the whole test set, where a result has
  it. A note below the table counts clients that are left out of means. Where
  examples are kept for choosing, a second table has the last round, the chosen
  one and the best one on the tests. Clients who came after training have a
  table of their own.
  """
  views = list(
    dict.fromkeys(view for result in results for view in result['views'])
  )
  if 'finetuned' in views:
    views = [view for view in views if not view.startswith('finetuned_')]
  has_global = any('global' in result for result in results)
  rows = [('algorithm', *views, *['global'] * has_global, 'seconds')]
  for result in results:
    cells = [mean_and_std(result['views'].get(view)) for view in views]
    cells += [_global_cell(result.get('global'))] * has_global
    name = display_name(result['algorithm'])
    rows.append((name, *cells, f'{result["seconds"]:.1f}'))
  chosen = [result for result in results if 'validation' in result]
  more = ['', _choices(chosen)] if chosen else []
  with_unseen = [result for result in results if 'unseen' in result]
  more += ['', _unseen(with_unseen, views)] if with_unseen else []
  return '\n'.join([align(rows), *_metrics(results), *_notes(results), *more])


def _metrics(results: Sequence[Mapping[str, Any]]) -> list[str]:
  """Return a line for each result with metrics of the user's own."""
  lines = []
  for result in results:
    values: dict[str, list[str]] = {}
    for view, summary in result['views'].items():
      for name in {*summary} - TAKEN:
        value = summary[name]  # None: it was finite for no client
        shown = f'{value:.4g}' if isinstance(value, int | float) else '-'
        values.setdefault(name, []).append(f'{view} {shown}')
    name = display_name(result['algorithm'])
    lines += [
      f'{name}, {metric}: {", ".join(own)}'
      for metric, own in sorted(values.items())
    ]
  return lines


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
  for result in results:
    parts = [view.get('num_left_out', 0) for view in result['views'].values()]
    if out := max(parts, default=0):
      name = display_name(result['algorithm'])
      lines.append(
        f'{name}: clients left out of the means, for want of training or test '
        f'examples: {out:,}'
      )
  return lines


def _unseen(results: Sequence[Mapping[str, Any]], views: list[str]) -> str:
  """Return the table of the clients who came after training."""
  rows = [('unseen clients', *views, 'worst tenth', 'clients')]
  for result in results:
    unseen = result['unseen']
    summaries = [unseen.get(view) for view in views]
    last = next(filter(None, reversed(summaries)))
    rows.append(
      (
        display_name(result['algorithm']),
        *map(mean_and_std, summaries),
        _number(last['worst_decile']),
        str(last['num_clients']),
      )
    )
  return align(rows)


def _number(value: float | None) -> str:
  return '-' if value is None or math.isnan(value) else f'{value:.1f}'


def _choices(results: Sequence[Mapping[str, Any]]) -> str:
  """Return the table of the rounds that may be chosen, and what was."""
  rows = [('round chosen by', *KINDS, 'result')]
  lines = []
  for result in results:
    name, found = display_name(result['algorithm']), result['validation']
    cells = map(mean_and_std, summaries_by_choice(result).values())
    rows.append((name, *cells, result['select']))
    lines.append(
      f'{name}: validation chose round {found["round"]} of '
      f'{result["last"]["round"]}, {found["view"]} '
      f'({found["validation_accuracy"]:.1f} there); last: '
      f'{result["last"]["view"]}'
    )
  return '\n'.join([align(rows), *lines, TEST_BEST])


def _global_cell(numbers: Mapping[str, Any] | None) -> str:
  if numbers is None or numbers['accuracy'] is None:
    return '-'
  return f'{numbers["accuracy"]:.1f}'


def mean_and_std(summary: Mapping[str, Any] | None) -> str:
  """Return 'mean ± std'; '-' where there is no such view or no number."""
  if summary is None or summary['mean'] is None or math.isnan(summary['mean']):
    return '-'
  return f'{summary["mean"]:.1f} ± {summary["std"]:4.1f}'
