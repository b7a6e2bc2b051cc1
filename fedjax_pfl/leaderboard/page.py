"""The page of a leaderboard: verdicts, tables and intervals in one HTML file.

Its style, its tables and its script are those of the report's page.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fedjax_pfl.evaluation.differences import Difference
from fedjax_pfl.leaderboard import tables
from fedjax_pfl.leaderboard.board import (
  VERDICTS,
  Board,
  baseline_name,
  sentences,
)
from fedjax_pfl.leaderboard.form import Form
from fedjax_pfl.leaderboard.rows import Row, ranked, rows_of
from fedjax_pfl.report.charts.rows import Mark, plot_intervals
from fedjax_pfl.report.charts.rows import Row as Line
from fedjax_pfl.report.page.render import DATASETS, load_template
from fedjax_pfl.report.styles import display_name, style_of

TEMPLATE = 'leaderboard.html.jinja'


def render(
  form: Form, boards: Sequence[Board], changes: Sequence[str] = ()
) -> str:
  """Return the page; `changes` are verdicts that other seeds do not repeat."""
  css = {method: f'c{place}' for place, method in enumerate(form.methods)}
  dataset = form.base['dataset']
  rows = {board.partition: ranked(rows_of(form, board)) for board in boards}
  return load_template(TEMPLATE, pathlib.Path(__file__).parent).render(
    title=f'Leaderboard on {DATASETS.get(dataset, dataset)}',
    lead=' '.join([_lead(boards), *_missing(form, boards)]),
    facts=_facts(form),
    methods={css[method]: style_of(method) for method in form.methods},
    overview=tables.overview(rows, css),
    boards=[_section(board, rows[board.partition], css) for board in boards],
    protocol=_protocol(form),
    changes=changes,
  )


def _section(
  board: Board, rows: Sequence[Row], css: Mapping[str, str]
) -> dict[str, Any]:
  return {
    'title': board.partition,
    'sentences': sentences(board),
    'accuracy': tables.accuracy(rows, css),
    'costs': tables.costs(rows, css),
    'charts': [
      {
        'title': f'Minus {baseline_name(baseline)}',
        'svg': plot_differences(found, css),
      }
      for baseline, found in board.against.items()
    ],
  }


def _lead(boards: Sequence[Board]) -> str:
  """Return how many methods are distinguishably above each baseline."""
  parts = []
  for baseline in boards[0].against:
    found = {
      board.partition: board.against[baseline].values() for board in boards
    }
    words = ', '.join(
      f'{sum(one.low > 0 for one in values)} of {len(values)} at {name}'
      for name, values in found.items()
    )
    parts.append(f'above {baseline_name(baseline)}: {words}')
  return f'Methods that are distinguishably {"; ".join(parts)}.'


def _missing(form: Form, boards: Sequence[Board]) -> list[str]:
  """Return a sentence about what is not trained yet; [] if all is."""
  done = {board.partition: len(board.entries) for board in boards}
  missing = [
    f'{name} has {done.get(name, 0)} of {len(form.methods)} methods'
    for name in form.partitions
    if done.get(name, 0) < len(form.methods)
  ]
  return [f'Not finished: {"; ".join(missing)}.'] if missing else []


def _facts(form: Form) -> list[tuple[str, Any]]:
  base = form.base
  return [
    ('model', base['model']),
    ('clients', base['num_clients']),
    ('client fraction', base['client_fraction']),
    ('rounds', base['rounds']),
    ('local epochs', base['local_epochs']),
    ('learning rates', ', '.join(f'{rate:g}' for rate in form.rates)),
    ('seeds', ', '.join(map(str, form.seeds))),
    ('trainings', form.num_trainings),
  ]


def _protocol(form: Form) -> list[str]:
  """Return the protocol in sentences."""
  base, epochs = form.base, form.base['finetune']['epochs']
  tuning = ', '.join(map(str, form.seeds[: form.tuning_seeds]))
  return [
    f'Every method has {base["rounds"]} rounds of the same cohorts, and a '
    f'client goes {base["local_epochs"]} times over its data in a round. A '
    'method with two models does so with each, so gradients are not equal: '
    'the table of costs has them. Local only has as many epochs as a client '
    'of the others trains, on average, and fine-tunes at most.',
    f'{base["validation_fraction"]:.0%} of the training examples of each '
    f'client are kept for choosing. On those of the seeds {tuning} each method '
    'gets its learning rate, also that of its fine-tuning, and the epochs of '
    f'fine-tuning ({" or ".join(map(str, epochs))}) or the mixture. Its other '
    'hyperparameters have their defaults. No test reaches a choice, and '
    'nothing is trained again with the validation examples.',
    'Numbers are test accuracies of the last round: means over clients, then '
    'over seeds. Intervals are simultaneous, 95 % for all comparisons with '
    'both baselines in a partition, from a paired bootstrap of seeds and '
    'their clients. Where seeds are most of the spread, three give a third of '
    'the needed width, and 95 % is about 75 % for one comparison. They do not '
    'cover the choice of the learning rate; other seeds repeat that, too.',
  ]


# ---- The chart of a baseline -------------------------------------------------


def plot_differences(
  found: Mapping[str, Difference], css: Mapping[str, str]
) -> Markup:
  """Draw a point and an interval for each method, the highest on top.

  A filled point is distinguishable from 0, a hollow one is not.
  """
  lines = []
  for method in sorted(found, key=lambda method: -found[method].mean):
    one, name = found[method], display_name(method)
    title = (
      f'{name}: {one.mean:+.2f} points, {one.low:+.2f} to {one.high:+.2f}: '
      f'{VERDICTS[one.sign]}'
    )
    kind = 'mark' if one.sign else 'hollow'
    mark = Mark(one.mean, one.low, one.high, kind=kind)
    words = (f'{round(one.mean, 1) + 0.0:+.1f}',)
    lines.append(Line(name, [mark], words, css[method], title))
  return plot_intervals(lines, 'difference after personalisation, points')
