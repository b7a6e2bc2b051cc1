"""A figure of all methods: mean accuracy before and after personalisation."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.report import finished_runs, plots
from fedjax_pfl.report.figure_file import format_number, save
from fedjax_pfl.report.styles import display_name, style_of
from fedjax_pfl.runs import run_dir

HEADER = ('algorithm', 'before', 'after', 'worst_decile_after')


class Gain(NamedTuple):
  """Accuracies of one run in percent, over clients."""

  algorithm: str
  before: float  # mean of the first view; NaN for a method with one view
  after: float  # mean after personalisation
  worst_decile: float  # the same
  note: str = ''  # where the tests have chosen the view after


def save_overview(
  workdirs: Sequence[str | os.PathLike], out: str | os.PathLike
) -> pathlib.Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return it."""
  from matplotlib.figure import Figure  # 0.6 s

  results = {str(path): run_dir.load_result(path) for path in workdirs}
  finished_runs.check_comparable(
    {
      path: finished_runs.dataset_of(path, result)
      for path, result in results.items()
    }
  )
  gains = sorted(map(read_gain, results.values()), key=_from_the_best)
  figure = Figure(figsize=(8.6, 1.5 + 0.27 * len(gains)), layout='constrained')
  plot_gains(figure.subplots(), gains)
  dataset = next(iter(results.values()))['dataset']
  figure.suptitle(f'Personalisation on {dataset}', fontsize=12)
  figure.legend(
    handles=plots.summary_keys(
      'before personalisation', 'after, mean over clients'
    ),
    loc='outside lower center',
    ncols=3,
    frameon=False,
    **plots.notes_as_title([gain.note for gain in gains]),
  )
  rows = ((g.algorithm, *map(format_number, g[1:4])) for g in gains)
  return save(figure, out, HEADER, rows)


def read_gain(result: dict) -> Gain:
  """Return the numbers of one result.json."""
  views = result['views']
  first, last = finished_runs.first_and_after(list(views), result)
  before = _number(views[first]['mean']) if first else math.nan
  after = [_number(views[last][name]) for name in ('mean', 'worst_decile')]
  name, note = result['algorithm'], ''
  if chosen := finished_runs.chosen_by_tests(list(views), result):
    note = finished_runs.note_on_choice([chosen], display_name(name))
  return Gain(name, before, *after, note)


def _number(value: float | None) -> float:
  """Return a number of result.json, in which null is NaN."""
  return math.nan if value is None else value


def _from_the_best(gain: Gain) -> tuple[bool, float]:
  """Return what orders methods: those without a finite mean come last."""
  return math.isnan(gain.after), -gain.after


def plot_gains(ax: plots.Axis, gains: Sequence[Gain]) -> plots.Axis:
  """Draw a line from before (hollow) to after (filled), with its number."""
  for row, gain in enumerate(gains):
    style = style_of(gain.algorithm)
    ax.plot(
      [gain.before, gain.after], [row, row], color=style.colour, linewidth=2
    )
    ends = (gain.before, 'o', 'white'), (gain.after, 'o', style.colour)
    for value, marker, face in ends:
      ax.plot(
        value,
        row,
        marker=marker,
        color=style.colour,
        markerfacecolor=face,
        markersize=8,
        markeredgewidth=1.5,
      )
    ax.plot(
      gain.worst_decile, row, marker='x', color=style.colour, markersize=6
    )
    words = '–' if math.isnan(gain.after) else f'{gain.after:.1f}'
    ax.text(104, row, words, va='center', ha='left')
  names = [style_of(gain.algorithm).name for gain in gains]
  ax.set_yticks(range(len(gains)), names)
  ax.set_ylim(len(gains) - 0.5, -0.5)  # the best on top
  ax.set_xlim(0, 102)  # room for half a marker
  ax.set_xlabel('test accuracy [%]')
  plots.tidy(ax)
  ax.grid(axis='y', visible=False)
  ax.grid(axis='x', color='#DDDDDD', linewidth=0.8)
  return ax
