"""When does personalisation help: table, figure and sentences, from counts."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.marked_pages import filled
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core import atomic_files
from fedjax_pfl.evaluation.measures import Measure
from fedjax_pfl.results.charts import picture, svg
from fedjax_pfl.results.charts.figure_file import format_number, save
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import METHOD, Counts, Entry
from fedjax_pfl.results.statistics import board, differences
from fedjax_pfl.results.statistics.differences import Difference
from fedjax_pfl.results.tables.board_tables import rows_of
from fedjax_pfl.results.tables.table import markdown

UNLIKE = 'results/leaderboard/unlike.csv'
PAGE, FIGURE = 'docs/natural.md', 'docs/images/natural.png'
BEGIN = '<!-- sets: experiments/gains.py -->'
NATURAL = 'natural'  # begins the names of forms whose clients exist
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 400, 50, 352, 34
SHARES = {'start': 0, 'middle': 0.5, 'end': 1}  # of a text left of its spot
LETTER = 5.5  # the width of a letter, at most in the mean
Box = tuple[float, float, float, float]  # left, top, right, bottom
COLOURS = {'real': '#0072B2', 'made': '#777777'}
COLUMNS = (
  *('set', 'clients', 'unlike', 'FedAvg', 'fine-tuned', 'chosen', 'gain'),
  *('gain, % of error', 'chosen − alone', 'lowest client', 'worst tenth'),
  'worse than alone',
)
HEADER = 'set', 'unlike', 'method', 'gain', 'low', 'high', 'tuned'


class Gain(NamedTuple):
  """A set: what the method that validation names best adds to FedAvg."""

  name: str
  is_real: bool  # its clients exist
  measure: Measure
  line: dict[str, str]  # of UNLIKE
  fedavg: Entry
  chosen: Entry
  gap: Difference  # to FedAvg's one model, the better the higher
  alone: Difference  # to Local only
  row: dict[str, Any]  # of the chosen, on the board
  first: float  # FedAvg's one model

  @property
  def unlike(self) -> float:
    return float(self.line['unlike'])

  @property
  def shares(self) -> list[float]:
    """Return the gap and its ends in percent of FedAvg's error."""
    error = {'%': 100 - self.first}.get(self.measure.unit, self.first)
    return [100 * x / error for x in self.gap[:3]]

  @property
  def tuned(self) -> float:
    """Return the same of FedAvg, fine-tuned."""
    after = _mean(self.fedavg.after, self.measure)
    gain = self.measure.sign * (after - self.first)
    return self.shares[0] * gain / self.gap.mean


def read(root: Path) -> list[Gain]:
  """Return the sets of UNLIKE of which counts are stored, by unlikeness."""
  with (root / UNLIKE).open(encoding='utf-8', newline='') as file:
    lines = list(csv.DictReader(file))
  gains = []
  for form in dict.fromkeys(line['form'] for line in lines):
    counts = (root / UNLIKE).with_name(f'{form}{stored_counts.MARK}.csv')
    if counts.exists():
      about, entries = stored_counts.read([counts])
      kept = [
        x for x in lines if x['form'] == form and x['partition'] in entries
      ]
      gains += [gain_of(line, about, entries) for line in kept]
  return sorted(gains, key=lambda gain: gain.unlike)


def gain_of(line: dict[str, str], about, stored) -> Gain:
  """Return the gain of the method with the best value on validation.

  Local only is no choice. All are read after personalisation.
  """
  partition, measure = line['partition'], about.main
  entries = {x.method: x for x in stored[partition] if x.after}
  fedavg, alone = entries['fedavg'], entries['local_only']
  others = [x for x in entries.values() if x.kind == METHOD and x != alone]
  chosen = max(others, key=lambda entry: measure.sign * entry.choice.value)
  same = partition in about.same_clients
  rows = rows_of(board.make_board(about, partition, stored[partition]))
  (row,) = (row for row in rows if row['method'] == chosen.method)
  is_real = line['form'].startswith(NATURAL)
  return Gain(
    *(partition if is_real else f'{line["form"]}, {partition}', is_real),
    *(measure, line, fedavg, chosen),
    _gap(chosen.after, fedavg.before, measure, same),
    _gap(chosen.after, alone.after, measure, same),
    *(row, _mean(fedavg.before, measure)),
  )


def _gap(ours: Counts, theirs: Counts, measure: Measure, same: bool):
  """Return the rule's difference, the better the higher."""
  gaps = measure.sign * (ours.of(measure.name) - theirs.of(measure.name))
  floor = differences.error_of_clients(gaps, same)
  return differences.over_seeds([*map(np.nanmean, gaps)], floor)


def _mean(counts: Counts, measure: Measure) -> float:
  return float(np.mean(counts.means(measure.name)))


# ---- the page ----------------------------------------------------------------


def section(gains: Sequence[Gain]) -> str:
  """Return what stands between the marks of the page."""
  table = markdown(COLUMNS, map(cells, gains), range(1, len(COLUMNS)))
  image = f'![Gain against unlikeness]({FIGURE.removeprefix("docs/")})'
  return '\n\n'.join([image, *sentences(gains), table])


def cells(gain: Gain) -> Iterator[str]:
  of, row = gain.measure, gain.row
  yield f'`{gain.name}`' if gain.is_real else gain.name
  yield from (gain.line['clients'], f'{gain.unlike:.2f}')
  unit = '' if of.unit else f' {of.head}'
  yield f'{of.short(gain.first)}{unit}'
  yield of.short(_mean(gain.fedavg.after, of))
  yield f'{paper_name(gain.chosen.method)} {of.short(row["after"])}'
  yield with_ends(gain.gap[:3], of.short)
  yield with_ends(gain.shares, '{:.0f}'.format)
  yield with_ends(gain.alone[:3], of.short)
  for measure in sorted(board.compared(), key=lambda x: x.head):
    yield of.short(row[f'after_{measure.column}'])
  worse = row['worse_than_alone']
  yield '-' if worse is None else f'{worse:.0f} %'


def with_ends(numbers: Sequence[float], form) -> str:
  mean, low, high = (f'{"-" if x < 0 else "+"}{form(abs(x))}' for x in numbers)
  return f'{mean} ({low} to {high})'


def sentences(gains: Sequence[Gain]) -> Iterator[str]:
  """Yield what the intervals say."""
  from scipy.stats import kendalltau

  real = [gain for gain in gains if gain.is_real]
  for title, of in (
    ('Against the one model of FedAvg', lambda gain: gain.gap),
    ('Against Local only', lambda gain: gain.alone),
  ):
    parts = []
    for text, sign in (('above', 1), ('below', -1), ('not told from it', 0)):
      named = [f'`{gain.name}`' for gain in real if of(gain).sign == sign]
      parts += [f'{text}: {", ".join(named)}'] * bool(named)
    yield (
      f'**{title}** the method that validation names is, by 95 % intervals '
      f'that are not adjusted for the number of sets, {"; ".join(parts)}.'
    )
  if len(real) < 4:
    return
  pairs = np.array([(x.unlike, x.shares[0]) for x in real])
  tau, p = kendalltau(*pairs.T)
  yield (
    f'**Over the {len(real)} sets** whose clients exist, Kendall’s tau of '
    f'unlikeness and gain is {tau:+.2f} (p {p:.3f}): '
    + (
      'where clients are more unlike, the gain is larger.'
      if p < differences.LEVEL and tau > 0
      else 'so few sets do not show that the gain grows with unlikeness.'
    )
  )


def write(root: Path) -> list[Path]:
  """Write page and figure below `root`; return their paths."""
  gains, page = read(root), root / PAGE
  text = filled(page, BEGIN, section(gains))
  atomic_files.write_bytes(page, text.encode())
  note = (
    'Blue: clients exist. Grey: divided by a generator. Bars: 95 % intervals '
    'over seeds. Cross: FedAvg, fine-tuned.'
  )
  figure = picture.draw('', [svg.Panel('', chart(gains))], COLOURS, [note])
  rows = (
    [x.name, x.line['unlike'], x.chosen.method]
    + [*map(format_number, (*x.shares, x.tuned))]
    for x in gains
  )
  return [page, save(figure, root / FIGURE, HEADER, rows)]


def chart(gains: Sequence[Gain]) -> svg.Markup:
  """Draw a mark for each set; its name stands beside it."""
  right = WIDTH - 20
  x, across = svg.enclosing([[0, *(g.unlike for g in gains)]], LEFT, right)
  y, marks = svg.enclosing([g.shares for g in gains] + [[0]], BOTTOM, TOP)
  parts = [svg.text(0, 14, 'FedAvg’s error that personalisation removes, %')]
  parts += svg.levels(y, marks, LEFT, right, signed=True)
  parts += [
    svg.text(x(tick), BOTTOM + 20, f'{tick:g}', 'middle') for tick in across
  ]
  label = 'unlikeness: share of a borrowed model’s error that one’s own avoids'
  parts.append(svg.text(right, HEIGHT - 6, label, 'end'))
  bars = [(x(gain.unlike), *map(y, gain.shares[1:])) for gain in gains]
  taken = [(at - 4, high, at + 4, low) for at, low, high in bars]
  taken.append((LEFT, y(0) - 1, right, y(0) + 1))
  for gain, (at, low, high) in zip(gains, bars, strict=True):
    mean, css = y(gain.shares[0]), 'real' if gain.is_real else 'made'
    drawn = [
      svg.line(at, low, at, high, 'line'),
      svg.marker('o', at, mean, 4.5, 'mark'),
      svg.marker('X', at, y(gain.tuned), 4, 'mark'),
    ]
    parts.append(svg.tag('g', *drawn, class_=css))
    width = LETTER * len(gain.name)
    spots = [
      (at + way * 7, height, 'end' if way < 0 else 'start')
      for way in (1, -1)
      for height in (mean + 4, low + 3, high + 9)
    ]
    for spot in [*spots, (at, high - 6, 'middle'), (at, low + 14, 'middle')]:
      left = spot[0] - width * SHARES[spot[2]]
      box = left, spot[1] - 11, left + width, spot[1] + 3
      if LEFT < left < WIDTH - width and not any(_meet(box, x) for x in taken):
        break
    taken.append(box)
    parts.append(svg.text(*spot[:2], gain.name, spot[2]))
  return svg.drawing(WIDTH, HEIGHT, 'gain against unlikeness', *parts)


def _meet(box: Box, other: Box) -> bool:
  """Return whether two boxes overlap."""
  return all(
    max(box[at], other[at]) < min(box[at + 2], other[at + 2]) for at in (0, 1)
  )
