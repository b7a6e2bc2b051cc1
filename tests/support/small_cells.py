"""Cells of small trainings on the digits."""

import small_runs
from helpers import read_rows

from experiments.reproduction.cells import Cell, Published
from fedjax_pfl.settings import to_config
from fedjax_pfl.training.warm_start import load_start


def cell_of(settings, metric, reading, **more):
  setting = ('digits', 'tiny', settings['algorithm'], 10, 2, 0.3, 1, 'shards')
  published = Published('fedbabu', '99', *setting, metric, {}, 50.0, 9.0)
  return Cell(published, settings, reading, **more)


def build(settings, log):
  """Return an experiment whose model compiles quickly."""
  experiment = small_runs.make_experiment(**to_config(settings))
  if not settings.init_from:
    return experiment
  task = small_runs.TASK
  start = load_start(settings.init_from, settings.model.name, (8, 8, 1), task)
  data_id = start.identify(settings.method, experiment.data)
  data = experiment.data._replace(data_id=data_id)
  return experiment._replace(task=start.begin(task), data=data)


def rows_of(folder):
  """Return what is in a folder of results, but times and the commit."""
  rows, changing = {}, {'seconds': '', 'commit': ''}
  lines = read_rows(folder / 'summary.csv')
  rows['summary.csv'] = [{**line, **changing} for line in lines]
  for path in sorted(folder.glob('tables/*')):
    rows[path.name] = path.read_bytes()
  for path in sorted(folder.glob('runs/**/result.json')):
    run = path.parent
    rows[str(run.relative_to(folder))] = small_runs.numbers_of(run)
  return rows
