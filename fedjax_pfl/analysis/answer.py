"""What all questions to runs share."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.report.names import display_name
from fedjax_pfl.training.experiment import Experiment

Log = Callable[[str], None]


class Options(NamedTuple):
  """What some of the questions can be told."""

  rounds: int = 0  # 0 = all
  clients: int = 0
  epochs: int = 20
  images: int = 0
  classes: tuple[str, ...] = ()
  colours: str = 'fine'


class Opened(NamedTuple):
  """A run that is asked; the experiment where data are needed."""

  label: str  # the algorithm; with the directory's name where it is not alone
  path: pathlib.Path
  settings: dict[str, Any]
  experiment: Experiment | None

  @property
  def name(self) -> str:
    return display_name(self.label)


class Answer(NamedTuple):
  figure: Any
  header: tuple[str, ...]  # of the CSV
  rows: Iterable[Sequence[Any]]
  text: str = ''  # to be printed


def make_figure(columns: int, width: float, height: float, **options):
  """Return a matplotlib Figure and its axes; no window, no global state."""
  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure(figsize=(columns * width + 0.6, height), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  axes = figure.subplots(1, columns, squeeze=False, **options)
  return figure, list(axes[0])


def add_legend(figure, ax, **options) -> None:
  """Put the legend of an axis below the figure, in as many columns as fit."""
  handles, labels = ax.get_legend_handles_labels()
  inches = 0.8 + 0.085 * max(map(len, labels))  # of the widest entry
  columns = int(figure.get_figwidth() / inches)
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=max(1, min(columns, len(handles))),
    frameon=False,
    handlelength=3,
    **options,
  )
