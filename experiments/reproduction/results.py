"""The runs in a folder of results, found by the trainings of a plan.

>>> results = Results('results')
>>> key = results.key_of(training)
>>> evaluation = results.find(key, evaluation_key, 'finetuned')
"""

from pathlib import Path

from experiments.reproduction.plan import PlannedRun
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.runs.folder import (
  RUNS,
  Evaluation,
  read_evaluations,
  read_training,
  run_directories,
)
from fedjax_pfl.training import divergence, keys


class Results:
  """A folder of results, asked by keys and by the runs of a plan."""

  def __init__(self, folder: AnyPath):
    self.folder = Path(folder)
    self.runs = self.folder / RUNS
    self.evaluations: list[Evaluation] = []
    self.paths: dict[str, Path] = {}  # of trainings, finished or not, by key
    self.data: dict[int, set[str]] = {}  # with which a seed was begun
    self.key_of_setting: dict[str, str] = {}  # settings without data -> keys
    self._models: dict[str, str] = {}  # digests of final models -> keys
    for path in run_directories(self.runs):
      self.add_run(path)

  def add_run(self, path: Path) -> None:
    """Read a run directory, again if it was read before."""
    others = [x for x in self.evaluations if x.training.run.path != path]
    training = read_training(path, self._models)
    run, key = training.run, training.key
    is_finished = run.result != {}
    self.evaluations = others + read_evaluations(training, others)
    if not run.settings.system.quick:  # else its images may be synthetic
      self.data.setdefault(run.seed, set()).add(run.data)
      if is_finished or training.setting not in self.key_of_setting:
        self.key_of_setting[training.setting] = key
    finished = {other.training.run.path for other in others}
    if self.paths.setdefault(key, path) not in finished and is_finished:
      self.paths[key] = path

  def find(
    self, training: str, evaluation: str, view: str
  ) -> Evaluation | None:
    """Return the evaluation under these keys that has a view, or None."""
    wanted = training, evaluation
    alike = (x for x in self.evaluations if (x.training.key, x.key) == wanted)
    return next((x for x in alike if view in x.run.clients.scores), None)

  def key_of(self, training: PlannedRun) -> str:
    """Return the key of a training, on the data that it was run with.

    '' if it was not begun: then its key is known when its data is built.
    """
    first = training.init_from
    if first is None:
      return self.key_of_setting.get(training.identity, '')
    start = keys.model_key(self.key_of(first), first.settings)
    data = self.data.get(training.settings.seed, ())
    made = (keys.training_key(training.settings, x, start) for x in data)
    return next(filter(self.paths.__contains__, made), '')

  def path_of(self, training: PlannedRun) -> Path | None:
    """Return the run directory of a training; None if it was not begun."""
    return self.paths.get(self.key_of(training))

  def diverged(self, training: PlannedRun) -> str:
    """Return the sentence of a training, or of its start, that diverged; ''."""
    paths = filter(None, map(self.path_of, training.chain))
    return next(filter(None, map(divergence.sentence_of, paths)), '')
