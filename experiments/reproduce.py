"""Run a published table, and print ours beside it:

  python experiments/reproduce.py --table=fedbabu/13 \\
      --where shards=5,fraction=0.1,local_epochs=10 --seeds=3

Trains what is missing, goes on with what was broken off, leaves out what is
done; several cells share a training where they can. The table is printed, and
written below --results, where runs and their numbers are, too:

  results/tables/fedbabu_13.csv, .md   ours, published, difference
  results/results.sqlite               every client; fedjax_pfl.report.load
  results/runs/                        run directories, as of main.py

--dry-run lists the cells with the time and the memory each would take here.
--merge=FOLDER,FOLDER takes in the results of other machines. A figure
(--table=fedbabu/fig12) is drawn into results/tables.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import flags, logging

from experiments import commandline

TABLE = flags.DEFINE_string('table', None, 'PAPER/NUMBER, e.g. fedbabu/13')
WHERE = flags.DEFINE_string(
  'where', '', 'which cells: fields and values, e.g. shards=10,fraction=0.1'
)
SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'how many seeds, from 0 on', lower_bound=1
)
RESULTS = flags.DEFINE_string('results', 'results', 'where results go')
DRY_RUN = flags.DEFINE_bool(
  'dry-run', False, 'list the cells, their time and memory; train nothing'
)
MERGE = flags.DEFINE_list(
  'merge', [], 'folders of results, or of runs, of other machines'
)


def main(overrides):
  del overrides  # a table has its own settings
  logging.set_verbosity(logging.WARNING)  # orbax tells every step it takes
  # Imported here: a mistyped flag should not wait for jax.
  from configs import common
  from configs.tables.common import load_table
  from fedjax_pfl import console
  from fedjax_pfl.reproduction.cells import Figure
  from fedjax_pfl.reproduction.images import make_data_of
  from fedjax_pfl.reproduction.plan import Identity
  from fedjax_pfl.reproduction.results import Results
  from fedjax_pfl.reproduction.where import where
  from fedjax_pfl.reproduction.work import Place

  table = load_table(TABLE.value)
  cells = None if isinstance(table, Figure) else where(table.cells, WHERE.value)
  folder, defaults = Path(RESULTS.value), common.base().to_dict()
  identity = Identity(defaults, make_data_of(console.say))
  try:
    with Results.open(folder, defaults) as results:
      place = Place(folder, results, defaults)
      for other in MERGE.value:
        console.say(f'{other}: {results.merge(other)} new judgements')
      results.scan(place.runs)
      if cells is None:
        draw(table, place, identity)
      elif DRY_RUN.value:
        list_cells(table, cells, place, identity)
      else:
        tabulate(table, cells, place, identity)
  except KeyboardInterrupt:
    console.say('Stopped. The same command goes on from the last checkpoint.')
    sys.exit(130)


def list_cells(table, cells, place, identity):
  """Say what every cell would take here."""
  from fedjax_pfl import console
  from fedjax_pfl.reproduction import dry_run

  seeds = range(SEEDS.value)
  dry_run.list_cells(table, cells, seeds, place, identity, console.say)


def tabulate(table, cells, place, identity):
  """Run what the cells lack; write and print the table."""
  from fedjax_pfl import console
  from fedjax_pfl.reproduction.outcome import compare_all, write_files
  from fedjax_pfl.reproduction.plan import plan
  from fedjax_pfl.reproduction.table import as_text
  from fedjax_pfl.reproduction.work import do

  seeds = range(SEEDS.value)

  def write():
    every = compare_all(table.cells, seeds, place.results, identity)
    return write_files(table, every, place.folder)

  do(plan(cells, seeds, identity), place, console.say, on_done=write)
  path = write()
  compared = compare_all(cells, seeds, place.results, identity)
  console.say(as_text(table, compared))
  console.say(f'All cells of the table: {path}, {path.with_suffix(".csv")}')


def draw(figure, place, identity):
  """Run what the figure shows, and draw it."""
  from experiments.answers.ask import answer
  from experiments.answers.common import Options
  from fedjax_pfl import console
  from fedjax_pfl.reproduction import outcome
  from fedjax_pfl.reproduction.plan import training_of
  from fedjax_pfl.reproduction.work import path_of, train_missing

  folder = place.folder / outcome.FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  name = figure.name.replace('/', '_')
  if figure.what == 'partition':
    path = draw_partition(figure, folder / f'{name}.png')
    console.say(f'Figure: {path}')
    return
  paths = []
  for settings in figure.runs.values():
    training = training_of(settings, None, 0, identity)
    train_missing([training], place, console.say)
    paths.append(str(path_of(training, place)))
  options = Options(**figure.options)
  output = str(folder / f'{name}.pdf')
  path = answer(figure.what, paths, output, options, {}, console.say)
  console.say(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')


def draw_partition(figure, output):
  """Draw what clients hold; nothing is trained."""
  from experiments.draw_partition import count_classes
  from fedjax_pfl import console
  from fedjax_pfl.report import class_counts

  parts = [
    count_classes(settings, label, console.say)
    for label, settings in figure.runs.items()
  ]
  return class_counts.save(parts, output)


if __name__ == '__main__':
  commandline.run(main, required=['table'])
