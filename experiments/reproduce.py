"""Reproduce a published table, and print our numbers beside the published:

  python experiments/reproduce.py --table=fedbabu/13 \\
      --where shards_per_client=5,client_fraction=0.1,local_epochs=10 --seeds=3

Missing trainings are run, stopped ones continue, finished ones are reused;
cells share a training where their configs agree. The table is printed, and
written below --results with the runs and their numbers:

  results/tables/fedbabu_13.csv, .md   ours, published, difference
  results/summary.csv                  every run: its command and numbers
  results/results.sqlite               every client; see pfl.load_results
  results/runs/                        run directories, as main.py makes them

--dry-run lists the cells with the time and memory of each on this machine.
--merge=FOLDER,FOLDER adds the results of other machines. A figure
(--table=fedbabu/fig12) is drawn into results/tables.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for configs/

from absl import flags, logging

from experiments import commandline

TABLE = flags.DEFINE_string('table', None, 'PAPER/NUMBER, e.g. fedbabu/13')
WHERE = flags.DEFINE_string(
  'where',
  '',
  'which cells: fields and values, e.g. shards_per_client=10,local_epochs=4',
)
SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'number of seeds, from 0 on', lower_bound=1
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
  logging.set_verbosity(logging.WARNING)  # orbax logs every step
  # Imported here: a mistyped flag should not wait for jax.
  from configs import common
  from configs.tables.common import load_configs, load_table
  from fedjax_pfl.core import progress
  from fedjax_pfl.reproduction.cells import Figure
  from fedjax_pfl.reproduction.planning.data_fingerprints import make_data_of
  from fedjax_pfl.reproduction.planning.plan import Identity
  from fedjax_pfl.reproduction.results.results import Results, check_mergeable
  from fedjax_pfl.reproduction.execution.execute import open_workspace

  programs.keep_programs(progress.log)
  # All that can be wrong comes before the first file.
  table, defaults = load_table(TABLE.value), common.base().to_dict()
  identity = Identity(defaults, make_data_of(progress.log))
  make = FigureJob if isinstance(table, Figure) else TableJob
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
    place = open_workspace(folder, results, defaults)
    job.list(place) if DRY_RUN.value else job.run(place)


if __name__ == '__main__':
  commandline.run(main, required=['table'])
