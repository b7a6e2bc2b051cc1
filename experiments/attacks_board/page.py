"""The page and the figure of the board of attacks, from its counts alone."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.attacks_board.cells import ALONE, ATTACKS, METHODS, RULES
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.figure_file import format_number, save
from fedjax_pfl.results.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.statistics import differences
from fedjax_pfl.results.statistics.differences import Difference

PAGE, FIGURE = 'docs/attacks.md', 'docs/images/attacks.png'
BEGIN, END = '<!-- board: experiments/attacks.py -->', '<!-- end -->'
VIEWS = 'before', 'after'
# A method, and whether before or after personalisation.
COLUMNS = {
  'FedAvg': ('fedavg', 'before'),
  'FedAvg, fine-tuned': ('fedavg', 'after'),
  'FedBABU, fine-tuned': ('fedbabu', 'after'),
  'FedRep, own heads': ('fedrep', 'before'),
  'Ditto, personal': ('ditto', 'after'),
}
CLEAN = 'none', 'uniform'
LOCAL = ALONE, 'after', *CLEAN
FAR = 4  # honest clients: those whose labels are most unlike those of all
HEADER = 'column', 'attack', 'rule', 'mean', 'low', 'high'
CHART = {'width': 470, 'margins': (140, 16), 'height': 17}
NOTE = (
  'Accuracy of honest clients less that of the same column without an attack '
  'and with the mean; 95 % intervals over seeds. Hollow: Local only.'
)

Cell = tuple[str, str, str, str]  # method, view, attack, rule


class Board(NamedTuple):
  """What a file of counts says, by cell and seed."""

  accuracy: dict[Cell, dict[int, np.ndarray]]  # [K] in percent; NaN: attackers
  success: dict[Cell, dict[int, float]]  # of the backdoor, in percent
  unlike: dict[int, np.ndarray]  # [K], how far labels are from those of all


def read(path: Path) -> Board:
  with path.open(encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  numbers = lambda text: np.array(text.split(), int)
  board, tests, liars = Board({}, {}, {}), {}, {}
  for row in rows:
    if row['attackers']:  # the same in all cells of a seed
      known = liars.setdefault(row['seed'], row['attackers'])
      assert known == row['attackers'], row
    if row['method'] == ALONE:
      tests[row['seed']] = numbers(row['tests'])
      held = np.stack([*map(numbers, row['classes'].split('|'))])
      share = held / held.sum(1, keepdims=True) - held.sum(0) / held.sum()
      board.unlike[int(row['seed'])] = np.abs(share).sum(1) / 2
  for row in rows:
    for view in filter(row.get, VIEWS):
      cell, seed = (
        (row['method'], view, row['attack'], row['rule']),
        row['seed'],
      )
      values = 100 * numbers(row[view]) / tests[seed]
      values[numbers(liars[seed])] = np.nan
      board.accuracy.setdefault(cell, {})[int(seed)] = values
      if success := row[f'success_{view}']:
        board.success.setdefault(cell, {})[int(seed)] = float(success)
  return board


def gap(
  board: Board, cells: list[Cell], base: Cell, used: Callable | None = None
) -> Difference | None:
  """Return the mean of cells less another; None where one lacks a seed.

  used: seed -> the honest clients that count, if not all of them.
  """
  gaps = []
  for seed, before in board.accuracy[base].items():
    after = [board.accuracy.get(cell, {}).get(seed) for cell in cells]
    if any(values is None for values in after):
      return None
    values = np.mean(after, axis=0) - before
    gaps.append(np.where(used(seed), values, np.nan) if used else values)
  floor = differences.error_of_clients(gaps)
  return differences.over_seeds([*map(np.nanmean, gaps)], floor)


def gaps_of(board: Board) -> dict[tuple[str, str, str], Difference | None]:
  return {
    (name, attack, rule): gap(board, [(*key, attack, rule)], (*key, *CLEAN))
    for name, key in COLUMNS.items()
    for attack in ATTACKS
    for rule in RULES
  }


# ---- the page ----------------------------------------------------------------


def section(board: Board) -> str:
  """Return what stands between the marks of the page."""
  cells = {name: (*key, *CLEAN) for name, key in COLUMNS.items()}
  means = {
    name: np.mean([np.nanmean(x) for x in board.accuracy[cell].values()])
    for name, cell in (cells | {'Local only': LOCAL}).items()
  }
  lines = [
    f'Seeds {", ".join(map(str, board.unlike))}. Without an attack, and with '
    'the mean, honest clients have, in percent: '
    + ', '.join(f'{name} {mean:.1f}' for name, mean in means.items())
    + '.\n',
    *(f'{at}. {line}' for at, line in enumerate(sentences(board), 1)),
    f'\n![By attack and rule]({FIGURE.removeprefix("docs/")})\n',
    'Success of the backdoor on tests of honest clients, in percent, before '
    'and after personalisation:\n',
    f'| rule | {" | ".join(METHODS)} |\n|---|{"---:|" * len(METHODS)}',
  ]
  for rule in RULES:
    cells = [[(m, x, 'backdoor', rule) for x in VIEWS] for m in METHODS]
    pairs = (', '.join(f'{opened(board, x):.1f}' for x in two) for two in cells)
    lines.append(f'| {rule} | {" | ".join(pairs)} |')
  return '\n'.join(lines)


def opened(board: Board, cell: Cell) -> float:
  return float(np.mean([*board.success[cell].values()]))


def words(found: Difference | None) -> str:
  if found is None:
    return '-'
  text, low, high = (f'{x:+.1f}' for x in found[:3])
  return f'{text} ({low} to {high})' if found.has_interval else text


def listed(gaps: dict[str, Difference | None]) -> str:
  """Return all gaps, and of which of them the interval is on one side of 0."""
  told = [name for name, found in gaps.items() if found and found.sign]
  every = '; '.join(f'{name} {words(found)}' for name, found in gaps.items())
  return f'{every}. Told from 0: {"; ".join(told) or "none"}.'


def sentences(board: Board) -> Iterator[str]:
  """Yield five answers, of numbers with their intervals alone."""
  under = lambda key, rule: [(*key, attack, rule) for attack in ATTACKS[1:]]
  fedavg, tuned = [*COLUMNS.values()][:2]
  base = (*fedavg, *CLEAN)
  lost, beside = (
    {
      name: gap(board, under(key, 'uniform'), other or (*key, *CLEAN))
      for name, key in COLUMNS.items()
    }
    for other in ((), LOCAL)
  )
  yield (
    '**What do attacks do?** With the mean, and over the four attacks, honest '
    f'clients change by: {listed(lost)}'
  )
  yield (
    '**Does a personal model protect?** Under the same attacks, less Local '
    f'only, which none of them reaches: {listed(beside)}'
  )
  old, new = ((*key, 'backdoor', 'uniform') for key in (fedavg, tuned))
  pairs = board.success[old], board.success[new]
  change = [pairs[1][seed] - pairs[0][seed] for seed in pairs[0]]
  yield (
    '**Does fine-tuning remove a backdoor?** With the mean its trigger fools '
    f"FedAvg's model in {opened(board, old):.1f} % of the tests, fine-tuned "
    f'ones in {opened(board, new):.1f} %: '
    f'{words(differences.over_seeds(change))}.'
  )
  gaps = {rule: gap(board, under(fedavg, rule), base) for rule in RULES}
  yield (
    '**Do rules help?** FedAvg under the four attacks, less itself without an '
    f'attack and with the mean: {listed(gaps)}'
  )

  def is_far(seed):
    is_honest = ~np.isnan(board.accuracy[base][seed])
    unlike = np.where(is_honest, board.unlike[seed], -1)
    far = np.argsort(-unlike, kind='stable')[:FAR]
    return np.isin(np.arange(len(unlike)), far)

  costs = {
    f'{rule}, {name}': gap(board, [(*fedavg, 'none', rule)], base, used)
    for rule in [*RULES][1:]
    for name, used in (
      ('unlike', is_far),
      ('the others', lambda seed: ~is_far(seed)),
    )
  }
  yield (
    '**What do rules cost clients that are unlike the others?** Without an '
    f'attack FedAvg changes for the {FAR} honest clients whose labels are most '
    f'unlike those of all, and for the others, by: {listed(costs)}'
  )


def text(board: Board, page: Path) -> str:
  """Return the page, with the section between its marks."""
  before, _, rest = page.read_text(encoding='utf-8').partition(BEGIN)
  after = rest.partition(END)[2]
  return f'{before}{BEGIN}\n\n{section(board)}\n\n{END}{after}'


def write(counts: Path, root: Path) -> list[Path]:
  """Write page and figure below `root`; return their paths."""
  board, page = read(counts), root / PAGE
  atomic_files.write_bytes(page, text(board, page).encode())
  found, lines = gaps_of(board), []
  for cell, one in found.items():
    lines.append((*cell, *map(format_number, (one or [None] * 3)[:3])))
  colours = {key[0]: style_of(key[0]).colour for key in COLUMNS.values()}
  panels = [_panel(board, found, name) for name in COLUMNS]
  title = f'Attacks on the digits, {len(board.unlike)} seeds'
  figure = picture.draw(title, panels, colours, notes=[NOTE])
  return [page, save(figure, root / FIGURE, HEADER, lines)]


def _panel(board: Board, found: dict, name: str) -> Panel:
  css, rows = COLUMNS[name][0], []
  for attack in ATTACKS:
    rows.append(Row(attack.replace('_', ' ')))
    for rule in RULES:
      one = found[name, attack, rule]
      if one and (attack, rule) != CLEAN:
        marks = [Mark(*one[:3], css, size=3.5)]
        rows.append(Row(rule.replace('_', ' '), marks))
  alone = gap(board, [LOCAL], (*COLUMNS[name], *CLEAN))
  marks = [Mark(*alone[:3], css, 'hollow', 'D', size=3.5)]
  rows += [Row('no server'), Row('Local only', marks)]
  return Panel(name, plot_intervals(rows, 'points', **CHART))
