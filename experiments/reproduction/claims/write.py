"""Judge the claims of a file; put the verdicts into the page, and draw them.

Two figures, each with its numbers as a CSV beside it: of all differences, and
of those of every client.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.marked_pages import filled
from experiments.reproduction.claims import claims_page
from experiments.reproduction.claims.claims_file import LoadTable, load_claims
from experiments.reproduction.claims.verdicts import (
  Judged,
  Verdict,
  differences_by_client,
  judge_all,
)
from experiments.reproduction.results import Results
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.figure_file import format_number, save
from fedjax_pfl.results.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.styles import style_of

PAGE = 'docs/results.md'
IMAGES = 'docs/images'
BEGIN = '<!-- claims: experiments/claims.py -->'
FOREST = 'claims.png'
CLIENTS = 'claim_{}_clients.png'
DRAWN = 'a'  # the claim of which every client is drawn, if it has their scores
FOREST_HEADER = (
  *('claim', 'comparison', 'views', 'verdict', 'seeds', 'ours', 'low', 'high'),
  *('p', 'holm_p', 'published', 'published_error'),
)
NORMAL = 1.96
VIEWS = 'like with like', 'as published'
CLIENTS_HEADER = ('comparison', 'seed', 'client', 'difference')
OURS, PRINT = 'ours', 'print'  # css classes
COLOURS = {OURS: '#0072B2', PRINT: '#555555'}
FOREST_SIZE = {'width': 1000, 'margins': (300, 96), 'height': 29}
CLIENTS_SIZE = {'width': 1000, 'margins': (170, 265), 'height': 80}
FOREST_NOTE = (
  'Filled: ours, like with like, with its 95 % interval over seeds. Hollow: '
  'published, of the same views, with the 95 % interval from its deviations.'
)
CLIENTS_NOTE = (
  'Every client of every seed: accuracy with the first method less that with '
  'the second.'
)


def judge(claims: Path, folder: Path, load_table: LoadTable) -> list[Verdict]:
  stated = load_claims(claims, load_table)
  if not folder.is_dir():
    got = f'{folder}, which is no folder'
    expected = 'a folder of results, with runs/'
    raise bad_input('results', got=got, expected=expected)
  return judge_all(stated, Results(folder))


def text(verdicts: Sequence[Verdict], results: Path, page: Path) -> str:
  """Return the page, with the verdicts between its marks."""
  progress = claims_page.progress(results)
  section = f'{progress} {claims_page.whole(verdicts)}'
  return filled(page, BEGIN, section)


def write(verdicts: Sequence[Verdict], results: Path, root: Path) -> list[Path]:
  """Write page and figures below `root`; return their paths."""
  page = root / PAGE
  atomic_files.write_bytes(page, text(verdicts, results, page).encode())
  return [page, *save_figures(verdicts, root / IMAGES)]


# ---- Figures -----------------------------------------------------------------


def save_figures(verdicts: Sequence[Verdict], folder: Path) -> list[Path]:
  """Save the figure of all comparisons, and that of the clients of a claim."""
  rows = [row for verdict in verdicts for row in _rows(verdict)]
  label = 'difference in accuracy, points; a claim says it is above 0'
  panels = [Panel('', plot_intervals(rows, label, **FOREST_SIZE))]
  title = 'Claims of the papers: ours and the published differences'
  figure = picture.draw(title, panels, COLOURS, notes=[FOREST_NOTE])
  lines = []
  for verdict in verdicts:
    for pair in zip(verdict.like, verdict.judged, strict=True):
      lines += map(_line, [verdict.claim.name] * 2, VIEWS, pair)
  paths = [save(figure, folder / FOREST, FOREST_HEADER, lines)]
  for verdict in verdicts:
    shown = [judged for judged in verdict.like if _has_pairs(judged)]
    if verdict.claim.name == DRAWN and shown:
      paths.append(_save_clients(verdict, shown, folder))
  return paths


def _save_clients(
  verdict: Verdict, shown: Sequence[Judged], folder: Path
) -> Path:
  rows = [_client_row(judged, f'c{at}') for at, judged in enumerate(shown)]
  below = [judged.stated.terms[1].cell.settings for judged in shown]
  colours = {
    row.css: style_of(settings['algorithm']).colour
    for row, settings in zip(rows, below, strict=True)
  }
  label = 'difference of a client, points of its test accuracy'
  panels = [Panel('', plot_intervals(rows, label, **CLIENTS_SIZE))]
  title = f'({verdict.claim.name}) {verdict.claim.title}'
  notes = CLIENTS_NOTE, FOREST_NOTE
  figure = picture.draw(title, panels, colours | COLOURS, notes=notes)
  path = folder / CLIENTS.format(verdict.claim.name)
  lines = itertools.chain(*map(_client_lines, shown))
  return save(figure, path, CLIENTS_HEADER, lines)


def _has_pairs(judged: Judged) -> bool:
  """Return whether two methods have the score of each shared client."""
  clients = [x.score.clients for seed in judged.measured for x in seed]
  has_two = len(judged.stated.terms) == 2 and bool(clients)
  return has_two and all(x is not None for x in clients)


def _client_lines(judged: Judged) -> Iterator[tuple[str, ...]]:
  """Yield comparison, seed, client and difference of every client."""
  for (first, *_), scores in zip(judged.measured, judged.signed, strict=True):
    total = sum(sign * score.clients for sign, score in scores)
    name, seed = judged.stated.sentence, str(first.seed)
    for client, value in enumerate(map(format_number, total)):
      yield name, seed, str(client), value


def _client_row(judged: Judged, css: str) -> Row:
  """Return a dot for every client below the mean and its interval."""
  by_seed = map(differences_by_client, judged.signed)
  values = np.concatenate([group for groups in by_seed for group in groups])
  mean, low, high = judged.difference[:3]
  above, below = int((values > 0).sum()), int((values < 0).sum())
  ours = claims_page.our_words(judged)
  if judged.printed is not None:
    ours += f', published {judged.printed[0]:{claims_page.SIGNED}}'
  number = len(judged.measured)
  seeds = claims_page.seeds(number, number)
  counted = f'{seeds}: {above:,} above 0, {below:,} below'
  marks = [Mark(mean, low, high, shift=-16, size=4), *_printed(judged, -6)]
  return Row(judged.stated.sentence, marks, (ours, counted), css, dots=values)


def _rows(verdict: Verdict) -> Iterator[Row]:
  """Yield a heading, then ours above the published number of comparisons."""
  yield Row(f'({verdict.claim.name}) {verdict.claim.title}')
  for like, published in zip(verdict.like, verdict.judged, strict=True):
    marks = []
    if gap := like.difference:
      low, high = gap[1:3] if gap.has_interval else (gap.mean, gap.mean)
      marks.append(Mark(gap.mean, low, high, OURS, shift=-5, size=3.5))
    if not like.stated.unlike:
      marks += _printed(published, 5)
    yield Row(like.stated.sentence, marks, (like.verdict,))


def _printed(judged: Judged, shift: float) -> list[Mark]:
  """Return the mark of the published difference, if there is one."""
  if judged.printed is None:
    return []
  value, error = judged.printed
  half = NORMAL * (error or 0.0)
  low, high = value - half, value + half
  return [Mark(value, low, high, PRINT, 'hollow', 'D', shift=shift, size=3)]


def _line(claim: str, views: str, judged: Judged) -> tuple[str, ...]:
  gap, printed = judged.difference or [None] * 4, judged.printed or [None] * 2
  numbers = map(format_number, (*gap, judged.p, *printed))
  line = claim, judged.stated.sentence, views, judged.verdict
  return (*line, str(len(judged.measured)), *numbers)
