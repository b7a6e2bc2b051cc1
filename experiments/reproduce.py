"""Reproduce a published table, and print our numbers beside the published:

  fedjax-pfl reproduce --table=fedbabu/13 \\
      --where shards_per_client=5,client_fraction=0.1,local_epochs=10 --seeds=3

Missing trainings are run, stopped ones continue, finished ones are reused;
cells share a training where their configs agree. One that diverges ends alone:
the others go on. The table is printed, and written below --workdir with the
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
SEEDS = flags.DEFINE_string(
  'seeds', '1', 'number of seeds, from 0 on; or 3:6 for the seeds 3, 4, 5'
)
WORKDIR = flags.DEFINE_string('workdir', 'results', 'where results go')
DRY_RUN = flags.DEFINE_bool(
  'dry-run', False, 'list the cells, their time and memory; train nothing'
)


def main():
  from configs.tables.common import load_configs, load_table
  from experiments.reproduction import summary_rows, table_files
  from experiments.reproduction.cells import filter_cells
  from experiments.reproduction.compare import compare_all
  from experiments.reproduction.dry_run import list_costs
  from experiments.reproduction.execute import execute
  from experiments.reproduction.plan import plan
  from experiments.reproduction.results import Results
  from fedjax_pfl.compare.combinations import parse_seeds
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  compile_cache.cache_programs(progress.log)
  # Every mistake is found before the first file is written.
  table, seeds = load_table(TABLE.value), parse_seeds(SEEDS.value)
  cells = filter_cells(table.cells, WHERE.value)
  results = Results(WORKDIR.value)
  if DRY_RUN.value:
    list_costs(table, cells, seeds, results)
    return
  configs = load_configs()
  summary_rows.read_csv(results.folder / summary_rows.SUMMARY)

  def write():
    summary_rows.write_summary(results, configs)
    return table_files.write_table(table, results)

  execute(plan(cells, seeds), results, on_done=write)
  path, compared = write(), compare_all(cells, results)
  progress.log(table_files.as_text(table, compared))
  progress.log(f'All cells of the table: {path}, {path.with_suffix(".csv")}')


if __name__ == '__main__':
  commandline.run(main)
