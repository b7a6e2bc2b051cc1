"""Tables of plain text, of results and of other rows."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.evaluation.measures import measure_of
from fedjax_pfl.evaluation.own_metrics import TAKEN
from fedjax_pfl.results.runs.run import KINDS, Result, summaries_by_choice

TEST_BEST = (
  'test_best is chosen by the tests, which is optimistic; - without its view '
  'in eval_views'
)


def table(results: Sequence[Result]) -> str:
  """Return results (as of result.json) as a table of plain text.

  >>> initial = {'mean': 62.1, 'std': 11.4}
  >>> views = {'initial': initial, 'finetuned': {'mean': 85.0, 'std': 7.3}}
  >>> print(table([dict(algorithm='fedbabu', views=views, seconds=41.2)]))
  algorithm      initial    finetuned  seconds
  ---------  -----------  -----------  -------
  FedBABU    62.1 ± 11.4  85.0 ±  7.3     41.2

  Of several lengths of fine-tuning the last is shown, 'finetuned'; 'global' is
  the global model on the whole test set. Below: metrics of the user's, clients
  that are left out, the rounds that may be chosen, clients who came later.
  """
  named = [(paper_name(result['algorithm']), result) for result in results]
  views = list(dict.fromkeys(v for result in results for v in result['views']))
  if 'finetuned' in views:
    views = [view for view in views if not view.startswith('finetuned_')]
  server = ['global'] * any('global' in result for result in results)
  rows = [('algorithm', *views, *server, 'seconds')]
  for name, result in named:
    cells = [mean_and_std(result['views'].get(view)) for view in views]
    cells += [decimal(result.get(one, {}).get('accuracy')) for one in server]
    rows.append((name, *cells, f'{result["seconds"]:.1f}'))
    for model, own in result.get('models', {}).items():
      cells = [mean_and_std(own.get(view)) for view in views]
      blank = [''] * (len(server) + 1)
      rows.append((f'  {without_digest(model)}', *cells, *blank))
  lines = [align(rows)]
  lines += [line for one in named for line in _own_metrics(*one)]
  for name, result in named:
    each = result['views'].values()
    if most := max((one.get('num_left_out', 0) for one in each), default=0):
      lines.append(
        f'{name}: clients left out of the means, for want of training or test '
        f'examples: {most:,}'
      )
  if chosen := [one for one in named if 'validation' in one[1]]:
    lines += ['', *_choices(chosen)]
  if unseen := [one for one in named if 'unseen' in one[1]]:
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


def mean_and_std(summary: Mapping[str, Any] | None) -> str:
  """Return 'mean ± std'; '-' where there is no such view or no number."""
  mean = decimal(summary and summary['mean'])
  return mean if mean == '-' else f'{mean} ± {summary["std"]:4.1f}'


def decimal(value: float | None, form: str = '.1f') -> str:
  return '-' if value is None or math.isnan(value) else format(value, form)


def _own_metrics(name: str, result: Result) -> Iterator[str]:
  """Yield a line for each measure that not every evaluation has."""
  views = result['views']
  for metric in sorted({*itertools.chain(*views.values())} - TAKEN):
    # None: it was finite for no client.
    known = {view: one[metric] for view, one in views.items() if metric in one}
    text = measure_of(metric).text
    words = [f'{view} {text(x)}' for view, x in known.items()]
    yield f'{name}, {metric}: {", ".join(words)}'


def _choices(named: Sequence[tuple[str, Result]]) -> list[str]:
  """Return the table of the rounds that may be chosen, and what was."""
  rows, lines = [('round chosen by', *KINDS, 'result')], []
  for name, result in named:
    cells = map(mean_and_std, summaries_by_choice(result).values())
    rows.append((name, *cells, result['select']))
    found, last = result['validation'], result['last']
    lines.append(
      f'{name}: validation chose round {found["round"]} of {last["round"]}, '
      f'{found["view"]} ({found["validation_accuracy"]:.1f} there); last: '
      f'{last["view"]}'
    )
  return [align(rows), *lines, TEST_BEST]


def _unseen(named: Sequence[tuple[str, Result]], views: list[str]) -> str:
  """Return the table of the clients who came after training."""
  rows = [('unseen clients', *views, 'worst tenth', 'clients')]
  for name, result in named:
    found = [result['unseen'].get(view) for view in views]
    *_, last = filter(None, found)
    more = decimal(last['worst_decile']), str(last['num_clients'])
    rows.append((name, *map(mean_and_std, found), *more))
  return align(rows)
