"""The page and the figure of the board of attacks, from its counts alone."""

import csv
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.attacks_board.cells import (
  ALONE,
  ATTACKS,
  BACKDOOR,
  CLEAN,
  METHODS,
  RULES,
)
from experiments.marked_pages import filled
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.figure_file import format_number, save
from fedjax_pfl.results.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.statistics import differences
from fedjax_pfl.results.statistics.differences import Difference
from fedjax_pfl.results.tables.table import markdown

PAGE, FIGURES = 'docs/attacks.md', 'docs/images'
BEGIN = '<!-- board: experiments/attacks.py --form={} -->'
VIEWS = 'before', 'after'
# A method, and whether before or after personalisation.
COLUMNS = {
  'FedAvg': ('fedavg', 'before'),
  'FedAvg, fine-tuned': ('fedavg', 'after'),
  'FedBABU, fine-tuned': ('fedbabu', 'after'),
  'FedRep, own heads': ('fedrep', 'before'),
  'Ditto, personal': ('ditto', 'after'),
}
SETS = {'digits': 'the digits', 'cifar10': 'CIFAR-10', 'lite': 'CIFAR-10'}
LOCAL = ALONE, 'after', *CLEAN
FAR = 1 / 4  # of honest clients: those with labels most unlike those of all
HEADER = 'column', 'attack', 'rule', 'mean', 'low', 'high'
CHART = {'width': 470, 'margins': (140, 16), 'height': 17}
NOTE = (
  'Accuracy of honest clients less that of the same column without an attack '
  'and with the mean; 95 % intervals over several seeds. Hollow: Local only.'
)

Cell = tuple[str, str, str, str]  # method, view, attack, rule
Numbers = dict[Cell, dict[int, np.ndarray]]  # [K] in percent; NaN: attackers


class Board(NamedTuple):
  """What a file of counts says, by cell and seed."""

  accuracy: Numbers
  success: Numbers  # of the trigger; NaN, too, without tests of other classes
  unlike: dict[int, np.ndarray]  # [K], how far labels are from those of all

  def having(self, at: int, known: Sequence[str]) -> list[str]:
    """Return the methods, attacks or rules that it has, in this order."""
    return [x for x in known if x in {cell[at] for cell in self.accuracy}]

  @property
  def attacks(self) -> list[str]:
    return self.having(2, ATTACKS)

  @property
  def rules(self) -> list[str]:
    return self.having(3, RULES)

  @property
  def columns(self) -> dict[str, tuple[str, str]]:
    there = self.having(0, METHODS)
    return {name: key for name, key in COLUMNS.items() if key[0] in there}


def read(path: Path) -> Board:
  with path.open(encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  numbers = lambda text: np.array(text.split(), int)
  board, liars, tests, others = Board({}, {}, {}), {}, {}, {}
  for row in rows:
    if row['attackers']:  # the same in all cells of a seed
      known = liars.setdefault(row['seed'], row['attackers'])
      assert known == row['attackers'], row
    if row['method'] == ALONE:
      tests[row['seed']] = numbers(row['tests'])
      others[row['seed']] = numbers(row['others'])
      held = np.stack([*map(numbers, row['classes'].split('|'))])
      share = held / held.sum(1, keepdims=True) - held.sum(0) / held.sum()
      board.unlike[int(row['seed'])] = np.abs(share).sum(1) / 2
  for row, view in itertools.product(rows, VIEWS):
    cell, seed = (row['method'], view, row['attack'], row['rule']), row['seed']
    for kept, name, number in (
      (board.accuracy, view, tests),
      (board.success, f'success_{view}', others),
    ):
      if row[name]:
        known = np.where(number[seed] > 0, number[seed], np.nan)
        values = 100 * numbers(row[name]) / known
        values[numbers(liars[seed])] = np.nan
        kept.setdefault(cell, {})[int(seed)] = values
  return board


def gap(
  known: Numbers, cells: list[Cell], base: Cell, used: Callable | None = None
) -> Difference | None:
  """Return the mean of cells less another; None where one lacks a seed.

  used: seed -> the honest clients that count, if not all of them.
  """
  gaps = []
  for seed, before in known[base].items():
    after = [known.get(cell, {}).get(seed) for cell in cells]
    if any(values is None for values in after):
      return None
    values = np.mean(after, axis=0) - before
    gaps.append(np.where(used(seed), values, np.nan) if used else values)
  floor = differences.error_of_clients(gaps)
  return differences.over_seeds([*map(np.nanmean, gaps)], floor)


def gaps_of(board: Board) -> dict[tuple[str, str, str], Difference | None]:
  cells = itertools.product(board.columns.items(), board.attacks, board.rules)
  return {
    (name, *kind): gap(board.accuracy, [(*key, *kind)], (*key, *CLEAN))
    for (name, key), *kind in cells
  }


# ---- the page ----------------------------------------------------------------


def section(board: Board, figure: str) -> str:
  """Return what stands between the marks of the page."""
  cells = {name: (*key, *CLEAN) for name, key in board.columns.items()}
  means = {
    name: mean(board.accuracy, cell)
    for name, cell in (cells | {'Local only': LOCAL}).items()
  }
  methods = board.having(0, METHODS)
  lines = [
    f'Seeds: {", ".join(map(str, board.unlike))}. Without an attack, and with '
    'the mean, honest clients have, in percent: '
    + ', '.join(f'{name} {mean:.1f}' for name, mean in means.items())
    + '.\n',
    *(f'{at}. {line}' for at, line in enumerate(sentences(board), 1)),
    f'\n![By attack and rule](images/{figure})\n',
    'Tests of other classes of honest clients that the trigger moves to its '
    'target, in percent, before and after personalisation:\n',
  ]
  moved = lambda cell: f'{mean(board.success, cell):.1f}'
  kinds = {'mean, nobody attacks': CLEAN}
  kinds |= {rule: (BACKDOOR, rule) for rule in board.rules}
  rows = [
    [name, *(', '.join(moved((x, v, *kind)) for v in VIEWS) for x in methods)]
    for name, kind in kinds.items()
  ]
  lines.append(markdown(['rule', *methods], rows, range(1, 1 + len(methods))))
  return '\n'.join(lines)


def mean(known: Numbers, cell: Cell) -> float:
  return float(np.mean([np.nanmean(x) for x in known[cell].values()]))


def in_words(change: Difference | None) -> str:
  if change is None:
    return '-'
  text, low, high = (f'{x:+.1f}' for x in change[:3])
  return f'{text} ({low} to {high})' if change.has_interval else text


def listed(gaps: dict[str, Difference | None]) -> str:
  """Return all gaps, and of which of them the interval is on one side of 0."""
  told = [name for name, change in gaps.items() if change and change.sign]
  every = '; '.join(f'{name} {in_words(x)}' for name, x in gaps.items())
  if not any(change and change.has_interval for change in gaps.values()):
    return f'{every}.'
  return f'{every}. Told from 0: {"; ".join(told) or "none"}.'


def sentences(board: Board) -> Iterator[str]:
  """Yield five answers, of numbers with their intervals alone."""
  known, opened = board.accuracy, board.success
  under = lambda key, rule: [(*key, name, rule) for name in board.attacks[1:]]
  fedavg, tuned = [*COLUMNS.values()][:2]
  base = (*fedavg, *CLEAN)
  lost, beside = (
    {
      name: gap(known, under(key, 'uniform'), other or (*key, *CLEAN))
      for name, key in board.columns.items()
    }
    for other in ((), LOCAL)
  )
  yield (
    '**What do attacks do?** With the mean, and over all attacks, honest '
    f'clients change by: {listed(lost)}'
  )
  yield (
    '**Does a personal model protect?** Under the same attacks, less Local '
    f'only, which none of them reaches: {listed(beside)}'
  )
  old, new = ((*key, BACKDOOR, 'uniform') for key in (fedavg, tuned))
  before, after = (np.stack([*opened[cell].values()]) for cell in (old, new))
  is_open, calm = before > 0, (*tuned, *CLEAN)
  yield (
    '**Does fine-tuning remove a backdoor?** With the mean its trigger moves '
    f'{mean(opened, old):.1f} % of the tests to the target in FedAvg, and '
    f'{mean(opened, new):.1f} % once it is fine-tuned: '
    f'{in_words(gap(opened, [new], old))}. Where nobody attacks it moves '
    f'{mean(opened, base):.1f} % and {mean(opened, calm):.1f} %. Of '
    f'{is_open.sum()} honest clients with such a test, over all seeds, '
    f'{(after[is_open] == 0).sum()} have none after it.'
  )
  gaps = {x: gap(known, under(fedavg, x), base) for x in board.rules}
  yield (
    '**Do rules help?** FedAvg under all attacks, less itself without an '
    f'attack and with the mean: {listed(gaps)}'
  )

  def is_far(seed):
    is_honest = ~np.isnan(known[base][seed])
    unlike = np.where(is_honest, board.unlike[seed], -1)
    number = round(FAR * is_honest.sum())
    far = np.argsort(-unlike, kind='stable')[:number]
    return np.isin(np.arange(len(unlike)), far)

  costs = {
    f'{rule}, {name}': gap(known, [(*fedavg, 'none', rule)], base, used)
    for rule in board.rules[1:]
    for name, used in (
      ('unlike', is_far),
      ('the others', lambda seed: ~is_far(seed)),
    )
  }
  yield (
    '**What do rules cost clients that are unlike the others?** Without an '
    'attack FedAvg changes for the fourth of honest clients whose labels are '
    f'most unlike those of all, and for the others, by: {listed(costs)}'
  )


def text(board: Board, page: Path, form: str) -> str:
  """Return the page, with the section of this form between its marks."""
  return filled(page, BEGIN.format(form), section(board, _figure(form)))


def write(counts: Path, root: Path) -> list[Path]:
  """Write a form's part of the page, and its figure; return the paths."""
  form = counts.name.partition('_')[0]
  board, page = read(counts), root / PAGE
  atomic_files.write_bytes(page, text(board, page, form).encode())
  gaps = gaps_of(board)
  lines = [
    (*cell, *map(format_number, (change or [None] * 3)[:3]))
    for cell, change in gaps.items()
  ]
  colours = {key[0]: style_of(key[0]).colour for key in COLUMNS.values()}
  panels = [_panel(board, gaps, name) for name in board.columns]
  number = len(board.unlike)
  title = f'Attacks on {SETS[form]}, {number} seed{"s" * (number > 1)}'
  figure = picture.draw(title, panels, colours, notes=[NOTE])
  path = root / FIGURES / _figure(form)
  return [page, save(figure, path, HEADER, lines)]


def _figure(form: str) -> str:
  return f'attacks_{form}.png'


def _panel(board: Board, gaps: dict, name: str) -> Panel:
  css, rows = COLUMNS[name][0], []
  for attack in board.attacks:
    rows.append(Row(attack.replace('_', ' ')))
    for rule in board.rules:
      change = gaps[name, attack, rule]
      if change and (attack, rule) != CLEAN:
        marks = [Mark(*change[:3], css, size=3.5)]
        rows.append(Row(rule.replace('_', ' '), marks))
  alone = gap(board.accuracy, [LOCAL], (*COLUMNS[name], *CLEAN))
  marks = [Mark(*alone[:3], css, 'hollow', 'D', size=3.5)]
  rows += [Row('no server'), Row('Local only', marks)]
  return Panel(name, plot_intervals(rows, 'points', **CHART))
