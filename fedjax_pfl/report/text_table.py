"""Tables of plain text, of results and of other rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
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
  named = [(display_name(result['algorithm']), result) for result in results]
  views = list(dict.fromkeys(v for result in results for v in result['views']))
  if 'finetuned' in views:
    views = [view for view in views if not view.startswith('finetuned_')]
  has_global = any('global' in result for result in results)
  rows = [('algorithm', *views, *['global'] * has_global, 'seconds')]
  for name, result in named:
    cells = [mean_and_std(result['views'].get(view)) for view in views]
    if has_global:
      cells.append(_number(result.get('global', {}).get('accuracy')))
    rows.append((name, *cells, f'{result["seconds"]:.1f}'))
  lines = [align(rows)]
  lines += [line for one in named for line in _own_metrics(*one)]
  lines += [line for one in named for line in _left_out(*one)]
  if chosen := [one for one in named if 'validation' in one[1]]:
    lines += ['', *_choices(chosen)]
  if unseen := [
    (name, one['unseen']) for name, one in named if 'unseen' in one
  ]:
    lines += ['', _unseen(unseen, views)]
  return '\n'.join(lines)


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


def mean_and_std(summary: Mapping[str, Any] | None) -> str:
  """Return 'mean ± std'; '-' where there is no such view or no number."""
  mean = _number(summary and summary['mean'])
  return mean if mean == '-' else f'{mean} ± {summary["std"]:4.1f}'


def _number(value: float | None) -> str:
  return '-' if value is None or math.isnan(value) else f'{value:.1f}'


def _own_metrics(name: str, result: Mapping[str, Any]) -> Iterator[str]:
  """Yield a line for each metric of the user's own."""
  views = result['views']
  for metric in sorted(
    {one for view in views.values() for one in view} - TAKEN
  ):
    # None: it was finite for no client.
    values = {view: one[metric] for view, one in views.items() if metric in one}
    words = [
      f'{view} {value:.4g}' if isinstance(value, int | float) else f'{view} -'
      for view, value in values.items()
    ]
    yield f'{name}, {metric}: {", ".join(words)}'


def _left_out(name: str, result: Mapping[str, Any]) -> Iterator[str]:
  """Yield a line where clients are left out."""
  numbers = [view.get('num_left_out', 0) for view in result['views'].values()]
  if most := max(numbers, default=0):
    yield (
      f'{name}: clients left out of the means, for want of training or test '
      f'examples: {most:,}'
    )


def _choices(results: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
  """Return the table of the rounds that may be chosen, and what was."""
  rows, lines = [('round chosen by', *KINDS, 'result')], []
  for name, result in results:
    cells = map(mean_and_std, summaries_by_choice(result).values())
    rows.append((name, *cells, result['select']))
    found, last = result['validation'], result['last']
    lines.append(
      f'{name}: validation chose round {found["round"]} of {last["round"]}, '
      f'{found["view"]} ({found["validation_accuracy"]:.1f} there); last: '
      f'{last["view"]}'
    )
  return [align(rows), *lines, TEST_BEST]


def _unseen(
  results: Sequence[tuple[str, Mapping[str, Any]]], views: list[str]
) -> str:
  """Return the table of the clients who came after training."""
  rows = [('unseen clients', *views, 'worst tenth', 'clients')]
  for name, unseen in results:
    *_, last = (unseen[view] for view in views if unseen.get(view))
    cells = [mean_and_std(unseen.get(view)) for view in views]
    cells += [_number(last['worst_decile']), str(last['num_clients'])]
    rows.append((name, *cells))
  return align(rows)
