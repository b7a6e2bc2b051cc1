"""The page of a comparison: verdicts, tables and intervals in one HTML file.

Its style, its tables and its script are those of the report's page.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.results.charts import rows as charts
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.render import load_template
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.board import (
  Board,
  compared_with,
  not_finished,
  sentences,
)
from fedjax_pfl.results.statistics.differences import ABOVE, BELOW
from fedjax_pfl.results.tables.board_tables import tables_of
from fedjax_pfl.results.tables.paper_text import RULE, title_of

TEMPLATE = 'board.html.jinja'


def render(about: About, boards: Sequence[Board]) -> str:
  """Return the page."""
  css = {method: f'c{number}' for number, method in enumerate(about.methods)}
  firsts = [f'{board.partition}: {sentences(board)[0]}' for board in boards]
  shown = [
    {
      'title': board.partition,
      'sentences': sentences(board),
      'tables': tables_of(board, css),
      'charts': [
        Panel(f'Minus {paper_name(base)}', plot(base, board, css))
        for base in about.baselines
      ],
    }
    for board in boards
  ]
  return load_template(TEMPLATE).render(
    title=title_of(about),
    lead=' '.join([*firsts, *not_finished(about, boards)]),
    facts=about.facts,
    methods={css[method]: style_of(method) for method in about.methods},
    boards=shown,
    protocol=[*about.protocol, RULE],
  )


def plot(baseline: str, board: Board, css: Mapping[str, str]) -> Markup:
  """Draw a point and an interval for each method, the highest on top.

  A filled point is distinguishable from 0, a hollow one is not. `css` has the
  class of the colour of each method.
  """
  lines, main = [], board.about.main
  unit = main.unit_of_gap or main.head
  for row in compared_with(baseline, board.rows):
    name = paper_name(row['method'])
    ends = [row[f'vs_{baseline}_{part}'] for part in ('mean', 'low', 'high')]
    verdict = row[f'vs_{baseline}_verdict']
    said, *limits = map(main.signed, ends)
    title = f'{name}: {said} {unit}, {" to ".join(limits)}: {verdict}'
    kind = 'mark' if verdict in (ABOVE, BELOW) else 'hollow'
    mark = charts.Mark(*ends, kind=kind)
    values = (main.signed(ends[0], short=True),)
    lines.append(charts.Row(name, [mark], values, css[row['method']], title))
  label = f'difference after personalisation, {unit}'
  return charts.plot_intervals(lines, label)
