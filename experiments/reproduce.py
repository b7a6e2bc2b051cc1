"""Run a published table, and print ours beside it:

  python experiments/reproduce.py --table=fedbabu/13 \\
      --where shards_per_client=5,client_fraction=0.1,local_epochs=10 --seeds=3

Trains what is missing, goes on with what was broken off, leaves out what is
done; several cells share a training where they can. The table is printed, and
written below --results, where runs and their numbers are, too:

  results/tables/fedbabu_13.csv, .md   ours, published, difference
  results/summary.csv                  every run: its command and numbers
  results/results.sqlite               every client; fedjax_pfl.report.load
  results/runs/                        run directories, as of main.py

--dry-run lists the cells with the time and the memory each would take here.
--merge=FOLDER,FOLDER takes in the results of other machines. A figure
(--table=fedbabu/fig12) is drawn into results/tables.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import flags, logging

from experiments import commandline, programs

TABLE = flags.DEFINE_string('table', None, 'PAPER/NUMBER, e.g. fedbabu/13')
WHERE = flags.DEFINE_string(
  'where',
  '',
  'which cells: fields and values, e.g. shards_per_client=10,local_epochs=4',
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
  from experiments.jobs import Drawing, Tabulation
  from fedjax_pfl.core import progress
  from fedjax_pfl.reproduction.cells import Figure
  from fedjax_pfl.reproduction.images import make_data_of
  from fedjax_pfl.reproduction.plan import Identity
  from fedjax_pfl.reproduction.results import Results, check_mergeable
  from fedjax_pfl.reproduction.work import open_place

  programs.keep_programs(progress.log)
  # All that can be wrong comes before the first file.
  table, defaults = load_table(TABLE.value), common.base().to_dict()
  identity = Identity(defaults, make_data_of(progress.log))
  make = Drawing if isinstance(table, Figure) else Tabulation
  job = make(table, WHERE.value, range(SEEDS.value), identity)
  for other in MERGE.value:
    check_mergeable(other)
  with contextlib.ExitStack() as stack:
    folder = Path(RESULTS.value)
    if DRY_RUN.value and not folder.exists():  # and it shall not be made
      folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    results = stack.enter_context(Results.open(folder, defaults))
    for other in MERGE.value:
      progress.log(f'{other}: {results.merge(other)} new evaluations')
    place = open_place(folder, results, defaults)
    job.list(place) if DRY_RUN.value else job.run(place)


if __name__ == '__main__':
  commandline.run(main, required=['table'])
