"""Train the board of attacks: methods x attacks x rules of the server.

  python experiments/attacks.py --form=digits --seeds=10
  python experiments/attacks.py --form=cifar10 --seeds=3 --block=1 --dry-run
  python experiments/attacks.py --write

Every run is a directory in --workdir; a stopped board goes on by the same
command. A block of seeds is trained with all cells before the next block is
begun, and the counts of every client in results/attacks are those of whole
blocks: a board that was stopped is a board of fewer seeds.

--write puts what follows from the counts alone into docs/attacks.md, between
the marks of each form, and draws the figures again.
"""

import commandline
from absl import flags

FORM = flags.DEFINE_enum(
  'form', 'digits', ['digits', 'cifar10', 'lite'], 'what it is of'
)
SEEDS = flags.DEFINE_string('seeds', '10', 'number of seeds, or 3:6')
BLOCK = flags.DEFINE_integer('block', 2, 'seeds of a block', lower_bound=1)
WORKDIR = flags.DEFINE_string('workdir', 'runs/attacks', 'where the runs go')
DRY_RUN = flags.DEFINE_bool('dry-run', False, 'print the price, and stop')
WRITE = flags.DEFINE_bool('write', False, 'replace page and figure, and stop')


def main():
  from experiments.attacks_board import cells
  from fedjax_pfl.compare.combinations import parse_seeds
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  folder = commandline.ROOT / 'results' / 'attacks'
  if WRITE.value:
    from experiments.attacks_board import page  # matplotlib

    for counts in sorted(folder.glob('*_counts.csv')):
      written = page.write(counts, commandline.ROOT)
      progress.log(f'Written: {", ".join(map(str, written))}')
    return
  seeds = parse_seeds(SEEDS.value)
  board = cells.cells(FORM.value)
  if DRY_RUN.value:
    from fedjax_pfl.compare.forecast import forecast, total
    from fedjax_pfl.compare.plan import with_seeds
    from fedjax_pfl.results.tables.table import time_in_words

    plan = [x for c in board for x in with_seeds(c.settings, {}, seeds)]
    whole = total(forecast(plan, progress.log))
    progress.log(
      f'{whole.trainings:,} runs, {whole.images:,.0f} images of local '
      f'training, {time_in_words(whole.seconds)} on this machine.'
    )
    return
  compile_cache.cache_programs(progress.log)
  rows = []
  for first in range(0, len(seeds), BLOCK.value):
    block = seeds[first : first + BLOCK.value]
    for number, cell in enumerate(board, 1):
      progress.log(f'seeds {[*block]}, {number} of {len(board)}: {cell.words}')
      rows += cells.train(cell, block, WORKDIR.value, progress.log)
    cells.write(rows, folder / f'{FORM.value}_counts.csv')


if __name__ == '__main__':
  commandline.run(main)
