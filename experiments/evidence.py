"""Work through the queue of published cells, at the lowest priority:

  python experiments/evidence.py --minutes=150 --cores=1

(make evidence MINUTES=150 CORES=1). The queue, results/queue.toml, lists cells
in the order of their worth. Finished ones are reused, stopped ones continue
after their last checkpoint, and one that diverges ends alone. When the time is
up, a training saves a checkpoint after its round; the same command goes on.

Below --results it leaves what experiments/reproduce.py leaves: the summary, the
tables, and run directories, of which git keeps the numbers.

--dry-run prints what is done, what is next, and the hours left. Images come
from $TFDS_DATA_DIR.
"""

from pathlib import Path

import commandline
import priority
from absl import flags

QUEUE = flags.DEFINE_string('queue', 'results/queue.toml', 'the queue')
RESULTS = flags.DEFINE_string('results', 'results', 'where results go')
MINUTES = flags.DEFINE_float(
  'minutes', None, 'when to stop; without it, when all is done', 0.01, 1e6
)
CORES = flags.DEFINE_integer('cores', None, 'number of cores; default: all')
DRY_RUN = flags.DEFINE_bool(
  'dry-run', False, 'print the queue and its state; train nothing'
)


def main():
  priority.lower(CORES.value)
  # Imported here: threads of jax are to have the priority, too.
  from configs.tables.common import load_configs, load_table
  from fedjax_pfl.core import progress
  from fedjax_pfl.reproduction.queue import (
    load_queue,
    show_queue,
    work_through,
  )
  from fedjax_pfl.training import compile_cache

  queue = load_queue(Path(QUEUE.value), load_table)
  configs = load_configs()
  compile_cache.cache_programs(progress.log)
  folder = Path(RESULTS.value)
  if DRY_RUN.value:
    show_queue(queue, folder)
    return
  work_through(queue, folder, load_table, configs, minutes=MINUTES.value)


if __name__ == '__main__':
  commandline.run(main)
