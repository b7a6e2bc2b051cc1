"""The tables of a comparison: of its page, of Markdown, LaTeX and CSV.

The best of a column and those that are not distinguishable from it are bold.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fedjax_pfl.algorithms as methods
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  LEFT_OUT,
  Measure,
  measure_of,
)
from fedjax_pfl.results.runs.entry import METHOD as COMPARED
from fedjax_pfl.results.runs.entry import REFERENCE
from fedjax_pfl.results.runs.run import dataset_in_words
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.board import Board, Row, compared
from fedjax_pfl.results.statistics.differences import OPEN
from fedjax_pfl.results.tables.table import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  duration,
  number,
  number_of,
  of_latex,
  of_markdown,
  size,
  table_of,
  word,
)

VIEWS = (
  'Before: the global model, or the method’s own view before a client adapts. '
  'Bold: the best after personalisation, and what is not distinguishable '
  'from it. Below a difference: its 95 % interval, and what is distinguishable.'
)
OF_COSTS = (
  'Gradients and bytes are of the rounds of one training; fine-tuning adds its '
  'epochs. Time is of the whole training, the median of the seeds; the '
  'first of runs that share a program compiles it.'
)
RULE = (
  'Numbers are of the tests after the last round: means over clients, then '
  'over seeds. A difference is paired by client and seed; its 95 % interval '
  '(Student, over seeds) is of this comparison alone. It is distinguishable if '
  'p, by Holm over all comparisons with the baselines in a partition, is below '
  '0.05. The worst tenth is shown where each client has 50 tests. The choice '
  'of the settings is not covered; other seeds repeat it.'
)
ENTRY = re.compile(r'^@\w+\{(\w+),\n.*?^\}$', re.MULTILINE | re.DOTALL)
BIB = Path(methods.__file__).with_name('methods.bib')


def tables_of(
  board: Board,
  css: Mapping[str, str] | None = None,
  marks: Mapping[str, str] | None = None,
) -> list[Table]:
  """Return accuracies and costs, a row for each method, the highest first.

  `css` has the class of the colour of each method; `marks` are a column more.
  """
  accuracy, costs, notes = [], [], [VIEWS]
  for row in board.rows:
    name = paper_name(row['method'])
    cell = Cell(name, name, css=(css or {}).get(row['method'], ''))
    costs.append({METHOD: cell, **_costs(row, board.about.main)})
    below = [row['kind']] * (row['kind'] != COMPARED)
    below += [row['obstacle']] * bool(row['obstacle'])
    if row['kind'] == REFERENCE:
      if row['after'] is not None:
        notes.append(
          f'{name} is a reference and no competitor: one client has all data; '
          f'{row["after"]:.1f} % on the whole test set.'
        )
      row = dict.fromkeys(row) | {'method': row['method']}
    cell = cell._replace(below=tuple(below))
    accuracy.append({METHOD: cell, **_accuracy(row, board)})
    if marks:
      mark = Column('Mark', is_number=False)
      accuracy[-1][mark] = Cell(marks[row['method']])
  main = board.about.main
  return [
    table_of(main.label(main.head), accuracy, notes),
    table_of('Choice and cost', costs, [OF_COSTS]),
  ]


def _accuracy(row: Row, board: Board) -> dict[Column, Cell]:
  main, *others = board.about.measured
  cells = {
    Column('Before', '± over seeds'): _over_seeds(row, 'before', main),
    Column('After', '± over seeds'): _bold(row, 'after', main, board),
  }
  for base in board.about.baselines:
    names = ('mean', 'low', 'high', 'verdict')
    mean, low, high, verdict = (row[f'vs_{base}_{name}'] for name in names)
    cell = Cell(NONE)
    if mean is not None:
      mean, low, high = map(main.signed, (mean, low, high))
      below = f'{low} to {high}', verdict
      cell = Cell(mean, row[f'vs_{base}_mean'], below[: 1 + (verdict != OPEN)])
    hint = main.unit_of_gap or main.head
    cells[Column(f'− {paper_name(base)}', hint)] = cell
  for measure in others:
    tag, direction = board.about.tag(measure), measure.direction
    if measure.before:
      column = Column(f'{measure.head} before', direction)
      cells[column] = _over_seeds(row, f'before{tag}', measure)
    if any(x[f'after{tag}'] is not None for x in board.rows):
      column = Column(measure.head, f'after, {direction}')
      cells[column] = _bold(row, f'after{tag}', measure, board)
  for measure in compared():
    name = f'after_{measure.column}'
    # A client of few tests leaves no worst tenth.
    if any(x[name] is not None for x in board.rows):
      is_other = main != ACCURACY
      what = 'after' + f', {main.head}' * is_other
      shown = main if is_other else measure
      cells[Column(measure.head, what)] = number_of(shown, row[name])
  for name in [name for name in row if name.startswith(LEFT_OUT)]:
    measure = measure_of(name)
    note = f'{measure.head}: {measure.help}.'
    cells[Column(measure.head, help=note)] = number_of(measure, row[name])
  if any(x['worse_than_alone'] is not None for x in board.rows):
    cell = number(row['worse_than_alone'], '{:.0f} %')
    cells[Column('Worse than alone', 'of the clients')] = cell
  return cells


def _over_seeds(row: Row, name: str, measure: Measure) -> Cell:
  """Return the mean of a measure ± its deviation over seeds."""
  cell = number_of(measure, row[name])
  if row[name] is None:
    return cell
  means = [*map(float, row[f'{name}_by_seed'].split())]
  return cell._replace(text=measure.over_seeds(means))


def _bold(row: Row, name: str, measure: Measure, board: Board) -> Cell:
  """Return the same, bold where no other is distinguishably better."""
  is_best = row['method'] in board.best(measure)
  return _over_seeds(row, name, measure)._replace(is_best=is_best)


def _costs(row: Row, main: Measure) -> dict[Column, Cell]:
  """Return what a method was given by validation, computed and sent."""
  settings = word(row['settings'])
  if row['ends']:
    settings = settings._replace(below=(f'{row["ends"]}: an end of the grid',))
  return {
    Column('Settings', 'by validation', is_number=False): settings,
    Column('View', 'by validation', is_number=False): word(row['view']),
    Column('Validation', main.unit or main.head): number_of(
      main._replace(digits=main.digits and 1), row['validation']
    ),
    Column('Gradients', 'steps of all clients'): number(
      row['gradients'], '{:,.0f}'
    ),
    Column('Sent up', 'all rounds'): size(row['bytes_up']),
    Column('Sent down', 'all rounds'): size(row['bytes_down']),
    Column('Time', 'of a training'): duration(row['seconds']),
  }


def as_markdown(
  boards: Sequence[Board],
  sentences: Sequence[str],
  marks: Mapping[str, str] | None = None,
) -> str:
  """Return sentences, the tables of each board, and the papers' BibTeX."""
  parts = [*map(of_markdown, sentences)]
  for board in boards:
    parts.append(f'## {of_markdown(board.partition)}')
    parts += [table.as_markdown() for table in tables_of(board, marks=marks)]
  papers = references(boards[0].about).values()
  parts += ['## References', '```bibtex', *papers, '```'] * bool(papers)
  return '\n\n'.join(parts) + '\n'


def as_latex(boards: Sequence[Board], sentences: Sequence[str]) -> str:
  """Return a paragraph on the protocol, and the tables of each board.

  The sentences that are not in it are comments, as is the papers' BibTeX.
  """
  about = boards[0].about
  others = [text for text in sentences if text not in about.protocol]
  comments = ['needs \\usepackage{booktabs}', *others]
  papers = '\n'.join(references(about).values()).splitlines()
  parts = [f'% {" ".join(line.split())}' for line in comments]
  parts += [methods_text(about, of_latex), '']
  for board in boards:
    parts += [
      table._replace(title=f'{board.partition}: {table.title}').as_latex()
      for table in tables_of(board)
    ]
  parts += [f'% {line}' for line in papers]
  return '\n'.join(parts) + '\n'


def write_csv(rows: Sequence[Row], path: Path) -> None:
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def _text(value: Any) -> str:
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return '' if value is None else str(value)


# ---- protocol and sources


def title_of(about: About) -> str:
  """Return '10 methods on CIFAR-10 with 20 clients'."""
  names = [*map(dataset_in_words, about.dataset.split(', '))]
  clients = str(dict(about.facts).get('num clients', ''))
  with_clients = f' with {clients} clients' * clients.isdecimal()
  return f'{len(about.methods)} methods on {" and ".join(names)}{with_clients}'


def methods_text(about: About, escape: Callable[[str], str] = str) -> str:
  """Return a paragraph on what was compared, tuned and decided, and how.

  With `escape`, of LaTeX, methods that have a paper are cited by their names.
  """
  known, names = {*references(about)}, []
  for name in about.methods:
    cite = f'~\\cite{{{name}}}' * (name in known and escape is not str)
    names.append(f'{escape(paper_name(name))}{cite}')
  facts = '; '.join(f'{name}: {value}' for name, value in about.facts if value)
  commit = f', commit {about.commit[:12]}' * bool(about.commit)
  parts = [
    f'{title_of(about)}, by fedjax_pfl {about.version}{commit}. {facts}.',
    *about.protocol,
    RULE,
  ]
  return f'{", ".join(names)}: {escape(" ".join(parts))}'


def references(about: About) -> dict[str, str]:
  """Return {method: its BibTeX entry}, of the methods that have a paper."""
  papers = {
    entry[1]: entry[0] for entry in ENTRY.finditer(BIB.read_text('utf-8'))
  }
  return {name: papers[name] for name in about.methods if name in papers}
