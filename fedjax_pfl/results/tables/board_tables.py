"""The tables of a comparison: of its page, of Markdown, LaTeX and CSV.

The best of a column and those that are not distinguishable from it are bold.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedjax_pfl.algorithms as methods
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.runs.entry import METHOD as COMPARED
from fedjax_pfl.results.runs.entry import REFERENCE, Entry
from fedjax_pfl.results.runs.run import dataset_in_words
from fedjax_pfl.results.runs.stored_counts import VIEWS, About
from fedjax_pfl.results.statistics.board import Board, compared, mean_costs
from fedjax_pfl.results.statistics.choice import in_words
from fedjax_pfl.results.statistics.differences import OPEN
from fedjax_pfl.results.tables.table import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  number,
  of_latex,
  of_markdown,
  size,
  table_of,
  time_in_words,
  word,
)

NOTE = (
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
OF_SEEDS = {'': np.mean, '_lowest_seed': np.min, '_highest_seed': np.max}
OF_VERDICT = 'mean', 'low', 'high', 'p', 'p_within', 'verdict'
ENTRY = re.compile(r'^@\w+\{(\w+),\n.*?^\}$', re.MULTILINE | re.DOTALL)
BIB = Path(methods.__file__).with_name('methods.bib')


def tables_of(
  board: Board, marks: Mapping[str, str] | None = None
) -> list[Table]:
  """Return accuracies and costs, a row for each method, the highest first.

  `marks` are a column more.
  """
  css, main = css_of(board.about), board.about.main
  accuracy, costs, notes = [], [], [NOTE]
  for entry in board.entries:
    method, name = entry.method, paper_name(entry.method)
    cell = Cell(name, name, css=css.get(method, ''))
    costs.append({METHOD: cell, **_costs(entry, main)})
    below = [entry.kind] * (entry.kind != COMPARED)
    below += [entry.obstacle] * bool(entry.obstacle)
    if entry.kind == REFERENCE and entry.after:
      notes.append(
        f'{name} is a reference and no competitor: one client has all data; '
        f'{board.mean(method, "after", main):.1f} % on the whole test set.'
      )
    cell = cell._replace(below=tuple(below))
    shown = '' if entry.kind == REFERENCE else method  # without numbers
    accuracy.append({METHOD: cell, **_accuracy(board, shown)})
    if marks:
      accuracy[-1][Column('Mark', is_number=False)] = Cell(marks[method])
  return [
    table_of(main.label(main.head), accuracy, notes),
    table_of('Choice and cost', costs, [OF_COSTS]),
  ]


def _accuracy(board: Board, method: str) -> dict[Column, Cell]:
  main, *others = board.about.measured
  cells = {
    Column(view.capitalize(), '± over seeds'): _mean(board, method, view, main)
    for view in VIEWS
  }
  for base in board.about.baselines:
    column = Column(f'− {paper_name(base)}', main.unit_of_gap or main.head)
    cells[column] = Cell(NONE)
    if verdict := board.standings[main].against.get((method, base)):
      text, low, high = map(main.signed, verdict.gap[:3])
      below = f'{low} to {high}', *[verdict.word] * (verdict.word != OPEN)
      cells[column] = Cell(text, verdict.gap.mean, below)
  for measure in others:
    if measure.before:
      column = Column(f'{measure.head} before', measure.direction)
      cells[column] = _mean(board, method, 'before', measure)
    if board.has('after', measure):
      column = Column(measure.head, f'after, {measure.direction}')
      cells[column] = _mean(board, method, 'after', measure)
  for measure in compared():
    # A client of few tests leaves no worst tenth.
    if board.has('after', measure):
      is_other = main != ACCURACY
      column = Column(measure.head, 'after' + f', {main.head}' * is_other)
      text = (main if is_other else measure).text
      cells[column] = number(board.mean(method, 'after', measure), text)
  for measure in board.left_out:
    column = Column(measure.head, help=measure.help)
    cells[column] = number(board.mean(method, '', measure), measure.text)
  if worse := board.standings[main].worse:
    cell = number(worse.get(method), '{:.0f} %')
    cells[Column('Worse than alone', 'of the clients')] = cell
  return cells


def _mean(board: Board, method: str, view: str, measure: Measure) -> Cell:
  """Return mean ± deviation over seeds; after, the best is bold."""
  means = board.seeds(method, view, measure)
  if np.isnan(means).any():
    return Cell(NONE)
  cell = number(means.mean(), measure.text)
  is_best = view == 'after' and method in board.best(measure)
  return cell._replace(text=measure.over_seeds(means), is_best=is_best)


def _costs(entry: Entry, main: Measure) -> dict[Column, Cell]:
  """Return what a method was given by validation, computed and sent."""
  choice, costs = entry.choice, mean_costs(entry)
  settings = word(choice and in_words(choice.fields))
  if choice and choice.ends:
    below = f'{", ".join(choice.ends)}: an end of the grid'
    settings = settings._replace(below=(below,))
  text = main._replace(digits=main.digits and 1).text
  value = number(choice and choice.value, text)
  steps = number(costs.gradients, '{:,.0f}')
  view = word(choice and choice.view)
  return {
    Column('Settings', 'by validation', is_number=False): settings,
    Column('View', 'by validation', is_number=False): view,
    Column('Validation', main.unit or main.head): value,
    Column('Gradients', 'steps of all clients'): steps,
    Column('Sent up', 'all rounds'): number(costs.bytes_up, size),
    Column('Sent down', 'all rounds'): number(costs.bytes_down, size),
    Column('Time', 'of a training'): number(costs.seconds, time_in_words),
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
    parts += [table.as_markdown() for table in tables_of(board, marks)]
  papers = references(boards[0].about).values()
  parts += ['## References', '```bibtex', *papers, '```'] * bool(papers)
  return '\n\n'.join(parts) + '\n'


def as_latex(boards: Sequence[Board], sentences: Sequence[str]) -> str:
  """Return a paragraph on the protocol, and the tables of each board.

  The sentences are comments, as is the papers' BibTeX.
  """
  about = boards[0].about
  comments = ['needs \\usepackage{booktabs}', *sentences]
  papers = '\n'.join(references(about).values()).splitlines()
  parts = [f'% {" ".join(line.split())}' for line in comments]
  parts += [methods_text(about), '']
  for board in boards:
    parts += [
      table._replace(title=f'{board.partition}: {table.title}').as_latex()
      for table in tables_of(board)
    ]
  parts += [f'% {line}' for line in papers]
  return '\n'.join(parts) + '\n'


def css_of(about: About) -> dict[str, str]:
  """Return the class of the colour of each method."""
  return {method: f'c{at}' for at, method in enumerate(about.methods)}


# ---- columns of the CSV


def write_csv(boards: Sequence[Board], path: Path) -> None:
  rows = [row for board in boards for row in rows_of(board)]
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def rows_of(board: Board) -> list[dict[str, Any]]:
  """Return {column: value} of each method; None without."""
  rows = [_row(board, entry) for entry in board.entries]
  return [{k: None if x != x else x for k, x in row.items()} for row in rows]


def _row(board: Board, entry: Entry) -> dict[str, Any]:
  about, choice, method = board.about, entry.choice, entry.method
  values = {
    'form': about.name,
    'partition': board.partition,
    'method': method,
    'kind': entry.kind,
    'seeds': ' '.join(map(str, entry.seeds)),
    'learning_rate': choice and choice.fields.get('learning_rate'),
    'settings': choice and in_words(choice.fields),
    'ends': choice and ', '.join(choice.ends),
    'view': choice and choice.view,
    'validation': choice and choice.value,
  }
  for view in VIEWS:
    for measure in about.measured:
      name = f'{view}{about.tag(measure)}'
      means = board.seeds(method, view, measure)
      for end, reduce in OF_SEEDS.items():
        values[name + end] = float(reduce(means))
      form = '.6f' if measure.unit == '%' else '.8g'
      texts = [format(x, form) for x in means if not np.isnan(means).any()]
      values[f'{name}_by_seed'] = ' '.join(texts)
    for measure in compared():
      values[f'{view}_{measure.column}'] = board.mean(method, view, measure)
  values['worse_than_alone'] = board.standings[about.main].worse.get(method)
  for measure in about.measured:
    for base in about.baselines:
      verdict = board.standings[measure].against.get((method, base))
      parts = verdict and (*verdict.gap[:3], *verdict[1:3], verdict.word)
      for at, end in enumerate(OF_VERDICT):
        name = f'vs_{base}{about.tag(measure)}_{end}'
        values[name] = parts and parts[at]
  values |= mean_costs(entry)._asdict() | {'obstacle': entry.obstacle}
  return values | {x.name: board.mean(method, '', x) for x in board.left_out}


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


def methods_text(about: About) -> str:
  """Return LaTeX on what was compared, tuned and decided, and how.

  Methods that have a paper are cited by their names.
  """
  known, names = references(about), []
  for name in about.methods:
    cite = f'~\\cite{{{name}}}' * (name in known)
    names.append(f'{of_latex(paper_name(name))}{cite}')
  facts = '; '.join(f'{name}: {value}' for name, value in about.facts if value)
  commit = f', commit {about.commit[:12]}' * bool(about.commit)
  parts = [
    f'{title_of(about)}, by fedjax_pfl {about.version}{commit}. {facts}.',
    *about.protocol,
    RULE,
  ]
  return f'{", ".join(names)}: {of_latex(" ".join(parts))}'


def references(about: About) -> dict[str, str]:
  """Return {method: its BibTeX entry}, of the methods that have a paper."""
  papers = {x[1]: x[0] for x in ENTRY.finditer(BIB.read_text('utf-8'))}
  return {name: papers[name] for name in about.methods if name in papers}
