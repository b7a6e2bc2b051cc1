"""What every analysis takes and returns: options, open runs, an answer."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.report.styles import display_name
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build import Experiment

Log = Callable[[str], None]


class Options(NamedTuple):
  """Options of the analyses; each analysis reads those that it needs."""

  rounds: int = 0  # 0 = all
  clients: int = 0
  epochs: int = 20
  images: int = 0
  classes: tuple[str, ...] = ()
  colours: str = 'fine'


class OpenRun(NamedTuple):
  """A finished run; the experiment is rebuilt where data are needed."""

  label: str  # see finished_runs.labels_of
  path: pathlib.Path
  settings: Settings
  experiment: Experiment | None

  @property
  def name(self) -> str:
    return display_name(self.label)


class Answer(NamedTuple):
  figure: Any
  header: tuple[str, ...]  # of the CSV
  rows: Iterable[Sequence[Any]]
  text: str = ''  # to be printed
