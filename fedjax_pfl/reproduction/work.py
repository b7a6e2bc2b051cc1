"""Do what a table lacks: train, evaluate again, gather; in any number of goes.

What is done is found by the content of the run directories, and what was
broken off goes on from its last checkpoint, so that a command that is killed
at any moment can simply be repeated.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.reproduction import keys
from fedjax_pfl.reproduction.cells import Reading
from fedjax_pfl.reproduction.evaluations import (
  OF_SERVER,
  evaluate_again,
  stored_name,
)
from fedjax_pfl.reproduction.gather import is_finished
from fedjax_pfl.reproduction.plan import Evaluation, Training, groups, trainings
from fedjax_pfl.reproduction.results import Found, Results
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.training.experiment import Experiment, build_experiment
from fedjax_pfl.training.loop import train_seeds

RUNS = 'runs'  # the folder of the run directories below that of the results

Log = Callable[[str], None]


class Place(NamedTuple):
  """Where results are, and what their keys are made with."""

  folder: pathlib.Path
  results: Results
  defaults: Mapping[str, Any]
  found: Mapping[str, pathlib.Path]  # {training key: run that was there}

  @property
  def runs(self) -> pathlib.Path:
    return self.folder / RUNS


def do(
  evaluations: Sequence[Evaluation],
  place: Place,
  log: Log,
  on_done: Callable[[], None] = lambda: None,
) -> None:
  """Train and evaluate what the results lack; gather it as soon as it is there.

  `on_done` is called whenever results have come in.
  """
  missing = [one for one in evaluations if lacks(one, place.results)]
  for group in groups(trainings(missing)):
    train_missing(group, place, log)
    keys_of_group = {training.key for training in group}
    for evaluation in missing:
      if evaluation.training.key in keys_of_group:
        evaluate_missing(evaluation, place, log)
    on_done()


def lacks(evaluation: Evaluation, results: Results) -> bool:
  """Return whether a reading of the evaluation is not there yet."""
  return any(
    find(results, evaluation, reading) is None
    for reading in evaluation.readings
  )


def find(
  results: Results, evaluation: Evaluation, reading: Reading
) -> Found | None:
  """Return what holds the number of a reading, None if nothing does yet."""
  # Numbers of the server's model stand beside the view of it.
  view = reading.view if reading.measure in OF_SERVER else stored_name(reading)
  return results.find(evaluation.training.key, evaluation.key, view)


def open_place(
  folder: pathlib.Path, results: Results, defaults: Mapping[str, Any]
) -> Place:
  """Return the place; gather what runs there are, whatever their names."""
  found = {}
  for path in sorted((folder / RUNS).glob(f'*/{identity.CONFIG}')):
    key = keys.run_key(path.parent, defaults=defaults)
    if key not in found or is_finished(path.parent):
      found[key] = path.parent
  results.scan(folder / RUNS)
  return Place(folder, results, defaults, found)


def path_of(training: Training, place: Place) -> pathlib.Path:
  """Return the directory of a training: where it was begun, or a new one."""
  return place.found.get(training.key, place.runs / training.name)


def train_missing(group: Sequence[Training], place: Place, log: Log) -> None:
  """Train the seeds of a config that are not finished, in one program."""
  found = [(one, path_of(one, place)) for one in group]
  todo = [(one, path) for one, path in found if not is_finished(path)]
  alike: dict[str, list] = {}
  for one, path in todo:
    settings = settings_of(one, place, path)
    shared = {**settings, 'seed': 0, 'init_from': ''}
    # Runs begun elsewhere may differ in what does not change the training.
    alike.setdefault(repr(sorted(shared.items())), []).append((settings, path))
  for runs in alike.values():
    seeds = ', '.join(str(settings['seed']) for settings, _ in runs)
    log(f'{runs[0][0]["algorithm"]}: training seed {seeds}')
    train_seeds(
      [build_experiment(settings, log) for settings, _ in runs],
      [str(path) for _, path in runs],
    )
  for _, path in todo:
    place.results.add_run(path)


def evaluate_missing(evaluation: Evaluation, place: Place, log: Log) -> None:
  """Evaluate the models of a training in the ways that are not there yet."""
  path = path_of(evaluation.training, place)
  place.results.add_run(path)
  readings = [
    reading
    for reading in evaluation.readings
    if find(place.results, evaluation, reading) is None
  ]
  if not readings:
    return
  words = ', '.join(stored_name(reading) for reading in readings)
  log(f'{path.name}: evaluation {words}')
  experiment = experiment_of(evaluation, place, path, log)
  evaluate_again(experiment, path, evaluation.key, readings, log)
  place.results.add_run(path)


def settings_of(
  training: Training, place: Place, path: pathlib.Path
) -> dict[str, Any]:
  """Return the settings with which a training is begun, or goes on.

  A run goes on with its own: they may differ in what does not change what is
  trained. The directory of the run that a new one begins with is filled in.
  """
  if (path / identity.CONFIG).is_file():
    stored = run_dir.load_config(path)['config']
    return keys.fill(stored, place.defaults)
  settings = dict(training.settings)
  if training.start is not None:
    settings['init_from'] = str(path_of(training.start, place))
  return settings


def experiment_of(
  evaluation: Evaluation, place: Place, path: pathlib.Path, log: Log
) -> Experiment:
  """Return the experiment of a training, evaluated in another way."""
  settings = dict(evaluation.settings)
  if evaluation.training.start is not None:
    settings['init_from'] = str(path_of(evaluation.training.start, place))
  return build_experiment(settings, log)
