"""Reproduce a published table, and print our numbers beside the published:

  python experiments/reproduce.py --table=fedbabu/13 \\
      --where shards_per_client=5,client_fraction=0.1,local_epochs=10 --seeds=3

Missing trainings are run, stopped ones continue, finished ones are reused;
cells share a training where their configs agree. One that diverges ends alone:
the others go on. The table is printed, and written below --results with the
runs and their numbers:

  results/tables/fedbabu_13.csv, .md   ours, published, difference
  results/summary.csv                  every run: its command and numbers
  results/runs/                        run directories, as main.py makes them:
                                       every client; see pfl.load_results

--dry-run lists the cells with the time and memory of each on this machine,
also where the images are not. Runs of other machines are copied into
results/runs.
"""

import commandline
from absl import flags

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


def main():
  # Imported here: a mistyped flag should not wait for jax.
  from configs.tables.common import load_configs, load_table
  from fedjax_pfl.core import progress
  from fedjax_pfl.reproduction.cell_filter import filter_cells
  from fedjax_pfl.reproduction.jobs import reproduce_table
  from fedjax_pfl.reproduction.results import Results
  from fedjax_pfl.settings import parse_config
  from fedjax_pfl.training import startup

  startup.cache_programs(progress.log)
  # Every mistake is found before the first file is written.
  table = load_table(TABLE.value)
  filter_cells(table.cells, WHERE.value)
  results = Results(RESULTS.value)
  configs = {name: parse_config(one) for name, one in load_configs().items()}
  wanted = (table, WHERE.value, range(SEEDS.value), results, configs)
  reproduce_table(*wanted, dry_run=DRY_RUN.value)


if __name__ == '__main__':
  commandline.run(main, required=['table'])
