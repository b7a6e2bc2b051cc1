"""Two figures of the claims: all differences, and those of every client.

Each is saved with its numbers as a CSV beside it.
"""

import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from fedjax_pfl.evaluation.differences import differences_by_client
from fedjax_pfl.report import difference_plots
from fedjax_pfl.report.difference_plots import Differences, Published, Row
from fedjax_pfl.report.figure_file import format_number, save
from fedjax_pfl.report.styles import Style, style_of
from fedjax_pfl.reproduction.claims.verdicts import (
  Judged,
  Verdict,
  signed_scores,
)

FOREST = 'claims.png'
CLIENTS = 'claim_{}_clients.png'
FOREST_HEADER = (
  *('claim', 'comparison', 'verdict', 'seeds', 'ours', 'low', 'high'),
  *('interval', 'published', 'published_error'),
)
CLIENTS_HEADER = ('comparison', 'seed', 'client', 'difference')
WIDTH, ROW, MARGINS = 10.5, 0.29, 1.3  # inches


def save_forest(
  verdicts: Sequence[Verdict], folder: pathlib.Path
) -> pathlib.Path:
  """Save the figure of all comparisons of all claims."""
  from matplotlib.figure import Figure  # 0.6 s

  rows = [row for verdict in verdicts for row in _rows(verdict)]
  figure = Figure((WIDTH, MARGINS + ROW * len(rows)), layout='constrained')
  difference_plots.plot_forest(figure.subplots(), rows)
  figure.suptitle('Claims of the papers: ours against print', fontsize=13)
  figure.legend(
    handles=difference_plots.forest_keys(),
    loc='outside lower center',
    ncols=2,
    frameon=False,
  )
  lines = (
    _line(verdict.claim.name, one)
    for verdict in verdicts
    for one in verdict.judged
  )
  return save(figure, folder / FOREST, FOREST_HEADER, lines)


def save_clients(verdict: Verdict, folder: pathlib.Path) -> pathlib.Path | None:
  """Save the figure of every client; None if no comparison has their scores."""
  from matplotlib.figure import Figure  # 0.6 s

  shown = [one for one in verdict.judged if has_pairs(one)]
  if not shown:
    return None
  rows = {one.stated.sentence: _style_and_differences(one) for one in shown}
  figure = Figure((WIDTH, MARGINS + 1.0 * len(rows)), layout='constrained')
  difference_plots.plot_differences(figure.subplots(), rows)
  figure.suptitle(
    f'({verdict.claim.name}) {verdict.claim.title}\n'
    'every client: accuracy with the first method less that with the second',
    fontsize=12,
  )
  path = folder / CLIENTS.format(verdict.claim.name)
  lines = (line for one in shown for line in client_lines(one))
  return save(figure, path, CLIENTS_HEADER, lines)


def has_pairs(judged: Judged) -> bool:
  """Return whether two methods have the score of each shared client."""
  if len(judged.stated.terms) != 2 or not judged.measured:
    return False
  scores = [one.score for seed in judged.measured for one in seed]
  return all(one.clients is not None for one in scores)


def differences_of(judged: Judged) -> np.ndarray:
  """Return the difference of every client, seed after seed."""
  return np.concatenate(
    [group for seed in _signed(judged) for group in differences_by_client(seed)]
  )


def client_lines(judged: Judged) -> Iterator[tuple[str, ...]]:
  """Yield comparison, seed, client and difference of every client."""
  for measured, scores in zip(judged.measured, _signed(judged), strict=True):
    total = sum(one.sign * one.clients for one in scores)
    for client, value in enumerate(total):
      yield (
        judged.stated.sentence,
        measured[0].row['seed'],
        str(client),
        format_number(value),
      )


def _signed(judged: Judged) -> list:
  return [signed_scores(judged.stated.terms, one) for one in judged.measured]


def _style_and_differences(judged: Judged) -> tuple[Style, Differences]:
  other = judged.stated.terms[1].cell.settings['algorithm']
  mean, *ends = judged.difference[:3]
  return style_of(other), Differences(differences_of(judged), mean, tuple(ends))


def _rows(verdict: Verdict) -> Iterator[Row]:
  yield Row(f'({verdict.claim.name}) {verdict.claim.title}')
  for one in verdict.judged:
    found, mean, interval = one.difference, None, None
    if found is not None:
      mean = found.mean
      interval = (found.low, found.high) if found.has_interval else None
    published = one.printed and Published(*one.printed)
    yield Row(one.stated.sentence, one.verdict, mean, interval, published)


def _line(claim: str, one: Judged) -> tuple[str, ...]:
  printed = one.printed or (None, None)
  mean, low, high, kind = one.difference or (None, None, None, '')
  ours, low, high, *printed = (
    '' if value is None or math.isnan(value) else format_number(value)
    for value in (mean, low, high, *printed)
  )
  head = (claim, one.stated.sentence, one.verdict, str(len(one.measured)))
  return (*head, ours, low, high, kind, *printed)
