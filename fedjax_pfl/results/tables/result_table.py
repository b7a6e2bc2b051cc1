"""The table of finished runs, for a terminal, and the rounds to choose from."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.evaluation.measures import ACCURACY, Measure, measure_of
from fedjax_pfl.evaluation.own_metrics import TAKEN
from fedjax_pfl.evaluation.summary import NOT_FINITE, UNDEFINED
from fedjax_pfl.results.runs.run import (
  Result,
  notes_on_batches,
)
from fedjax_pfl.results.tables.table import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  align,
  mean_and_std,
  number,
  table_of,
  word,
)
from fedjax_pfl.runs.result_file import value_of_choice

CHOICES = (
  'On the tests after personalisation, mean ± deviation over clients. Test '
  'best has its round by the tests, which is optimistic, and needs eval_views.'
)

# Which round is chosen; the last is a choice by the tests.
ROUNDS = {'last': Column('Last'), 'validation': Column('Validation')}
ROUNDS |= {'test_best': Column('Test best', 'no main number')}
CHOSEN = Column('Chosen', 'round, view', is_number=False)
RESULT = Column('Result', 'select', is_number=False)


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
  measure = measure_of(results[0].get('measure', ACCURACY.name))
  means = lambda by: [mean_and_std(by.get(view), measure) for view in views]
  for name, result in named:
    numbers = [result.get(part, {}).get(measure.name) for part in server]
    more = *map(measure.short, numbers), f'{result["seconds"]:.1f}'
    rows.append((name, *means(result['views']), *more))
    rows += [
      (f'  {without_digest(model)}', *means(of_model), *[''] * len(more))
      for model, of_model in result.get('models', {}).items()
    ]
  lines = [align(rows)]
  if measure != ACCURACY:
    lower = ', of which lower is better' * (measure.sign < 0)
    lines.append(f'Mean and deviation over clients of {measure.head}{lower}.')
  lines += [line for pair in named for line in _own_metrics(*pair)]
  for name, result in named:
    each = result['views'].values()
    if most := max((view.get('num_left_out', 0) for view in each), default=0):
      lines.append(
        f'{name}: clients left out of the means: attackers, not evaluated, or '
        f'without training or test examples: {most:,}'
      )
  lines += notes_on_batches({name: [result] for name, result in named})
  if chosen := [pair for pair in named if 'validation' in pair[1]]:
    shown = choices([(Cell(name), [result]) for name, result in chosen])
    lines += ['', shown.as_text(), *shown.notes]
  if unseen := [pair for pair in named if 'unseen' in pair[1]]:
    lines += ['', _unseen(unseen, views, measure)]
  for name, result in named:
    lines += _lies(name, result, measure)
  return '\n'.join(lines)


def _own_metrics(name: str, result: Result) -> Iterator[str]:
  """Yield a line for each measure that not every evaluation has."""
  views = result['views']
  named = {*itertools.chain(*views.values())} - TAKEN
  ends = {UNDEFINED: 'not defined', NOT_FINITE: 'not finite'}
  for metric in sorted(name for name in named if not name.endswith((*ends,))):
    known = {view: row[metric] for view, row in views.items() if metric in row}
    text = measure_of(metric).text
    texts = [f'{view} {text(x)}' for view, x in known.items()]
    for end, said in ends.items():
      if most := max(row.get(metric + end, 0) for row in views.values()):
        texts[-1] += f'; {said} for clients: {most:,}'
    yield f'{name}, {metric}: {", ".join(texts)}'


def choices(named: Sequence[tuple[Cell, Sequence[Result]]]) -> Table | None:
  """Return the rounds that may be chosen: last, by validation, by tests.

  A row for each setting with the results of its seeds; None without any.
  """
  rows = []
  for name, results in named:
    chosen = [result['validation'] for result in results]
    pairs = dict.fromkeys(f'{x["round"]}, {x["view"]}' for x in chosen)
    (by, *_), values = zip(*map(value_of_choice, chosen), strict=True)
    value = number(np.mean(np.array(values, float)), measure_of(by).text)
    measure = measure_of(results[0].get('measure', ACCURACY.name))
    text = f'{value.text} {by}'.removesuffix(' accuracy')
    row = {METHOD: name}
    for kind, column in ROUNDS.items():
      row[column] = _by_choice([_summary(x, kind) for x in results], measure)
    row[CHOSEN] = Cell('; '.join(pairs), chosen[0]['round'])
    row[Column('On validation', 'examples')] = value._replace(text=text)
    row[RESULT] = word(results[0]['select'])
    rows.append(row)
  return table_of('The round by validation', rows, [CHOICES])


def _summary(result: Result, kind: str) -> Result | None:
  """Return that of the view after personalisation, or of the one chosen.

  None for 'test_best' without an evaluation of it in the rounds (`eval_views`).
  """
  if kind == 'test_best':
    best = result[kind].get(result['last']['view'], {})
    return best.get('together')
  return result[kind]['views'][result[kind]['view']]


def _by_choice(summaries: Sequence[Result | None], measure: Measure) -> Cell:
  """Return the mean over seeds, ± that of the deviations over clients."""
  if any(summary is None or summary['mean'] is None for summary in summaries):
    return Cell(NONE)
  means = np.array([summary['mean'] for summary in summaries])
  spread = np.mean([summary['std'] for summary in summaries])
  text = ' ± '.join(map(measure.text, (means.mean(), spread)))
  return number(means.mean(), text, tuple(seeds_of(means, measure)))


def seeds_of(means: np.ndarray, measure: Measure) -> list[str]:
  """Return the range of several seeds."""
  ends = ' to '.join(map(measure.text, (means.min(), means.max())))
  return [f'{len(means)} seeds: {ends}'] * (len(means) > 1)


def _unseen(
  named: Sequence[tuple[str, Result]], views: list[str], measure: Measure
) -> str:
  """Return the table of the clients who came after training."""
  rows = [('unseen clients', *views, 'worst tenth', 'clients')]
  for name, result in named:
    summaries = [result['unseen'].get(view) for view in views]
    *_, last = filter(None, summaries)
    cells = [mean_and_std(summary, measure) for summary in summaries]
    cells += measure.short(last['worst_decile']), str(last['num_clients'])
    rows.append((name, *cells))
  return align(rows)


def _lies(name: str, result: Result, measure: Measure) -> Iterator[str]:
  """Yield a table of honest clients with the same run without its attack.

  And a line on whom the server left out.
  """
  lies = result.get('lies', {})
  if 'clean' in lies:
    rows = [(f'{name}, honest clients', 'clean', 'attacked')]
    for view, summary in result['views'].items():
      summaries = lies['clean'][view], summary
      rows.append((view, *(mean_and_std(x, measure) for x in summaries)))
      lowest = [measure.short(x['lowest_client']) for x in summaries]
      rows.append(('  the lowest', *lowest))
    yield from ('', align(rows))
  if out := lies.get('left_out'):
    shares = ', '.join(f'{x} {measure_of(x).text(out[x])}' for x in out)
    shares = shares.replace('left_out/', '')
    yield f'{name}, clients left out by the server: {shares}'
