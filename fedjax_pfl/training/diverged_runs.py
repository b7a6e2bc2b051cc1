"""Train runs together, without those that diverge; these are recorded.

  RUN/diverged.json   the sentence with which the training ended

The numbers would be those of the same seed again. Without this file the same
command trains the run once more, from its last checkpoint.
"""

import os
import pathlib
from collections.abc import Callable, Sequence

from fedjax_pfl.core import atomic_files
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.divergence import Diverged
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.loop import train_seeds

Log = Callable[[str], None]

NAME = 'diverged.json'


def record(error: Diverged) -> None:
  """Write that this run diverged into its directory."""
  atomic_files.write_json(error.workdir / NAME, {'message': str(error)})


def sentence_of(workdir: str | os.PathLike) -> str:
  """Return the sentence of a run that diverged; '' for any other."""
  path = pathlib.Path(workdir) / NAME
  if not path.is_file() or run_dir.is_finished(workdir):
    return ''
  return str(run_dir.load_json(path).get('message', NAME))


def train_together(
  runs: Sequence[tuple[Experiment, pathlib.Path]], log: Log
) -> None:
  """Train the runs of one program; without those that diverge."""
  while runs:
    settings = [experiment.settings for experiment, _ in runs]
    seeds = dict.fromkeys(one.seed for one in settings)
    words = f'training seed {", ".join(map(str, seeds))}'
    if len(runs) > len(seeds):
      words += f' of several settings, {len(runs)} runs'
    log(f'{settings[0].algorithm}: {words}')
    try:
      train_seeds(
        [experiment for experiment, _ in runs], [str(path) for _, path in runs]
      )
      return
    except Diverged as error:
      record(error)
      log(f'{error}')
      left = [run for run in runs if run[1] != error.workdir]
      assert len(left) == len(runs) - 1, error.workdir
      runs = left  # they continue after their last checkpoints
