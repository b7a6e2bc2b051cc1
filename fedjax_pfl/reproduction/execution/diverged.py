"""Trainings that diverged: recorded in the run directory, and not repeated.

  RUN/diverged.json   the sentence with which the training ended

The numbers would be those of the same seed again. Without this file the same
command trains the run once more, from its last checkpoint.
"""

import os
import pathlib

from fedjax_pfl.core import atomic_files
from fedjax_pfl.reproduction.results.gather import is_finished
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.divergence import Diverged

NAME = 'diverged.json'


def record(error: Diverged) -> None:
  """Write that this run diverged into its directory."""
  atomic_files.write_json(error.workdir / NAME, {'message': str(error)})


def sentence_of(workdir: str | os.PathLike) -> str:
  """Return the sentence of a run that diverged; '' for any other."""
  path = pathlib.Path(workdir) / NAME
  if not path.is_file() or is_finished(workdir):
    return ''
  return str(run_dir.load_json(path).get('message', NAME))
