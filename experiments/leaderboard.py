"""Compare all methods by one protocol, tuned alike:

  python experiments/leaderboard.py                             digits
  python experiments/leaderboard.py --form=cifar10              two hours
  python experiments/leaderboard.py --seeds=3,4,5 \\
      --against=runs/leaderboard/digits_seeds_0_1_2.csv

(make leaderboard). configs/leaderboard.py has the budget of all forms. Each
training is a run directory below --folder: a repeated command trains nothing
twice, and a stopped one goes on.

Writes a page and a CSV: accuracy before and after personalisation, the worst
tenth of clients, differences to FedAvg + fine-tuning and to local-only with
intervals, and costs. --against names the CSV of other seeds; verdicts that
differ are printed.
"""

import commandline
from absl import flags

FORM = flags.DEFINE_string('form', 'digits', 'digits, cifar10 or demo')
FOLDER = flags.DEFINE_string(
  'folder', 'runs/leaderboard', 'where runs, page and CSV go'
)
SEEDS = flags.DEFINE_list('seeds', None, 'other seeds, such as 3,4,5')
AGAINST = flags.DEFINE_string('against', None, 'the CSV of other seeds')


def main():
  from configs.leaderboard import load_form
  from fedjax_pfl.core import progress
  from fedjax_pfl.leaderboard import board, fill_form
  from fedjax_pfl.training import compile_cache

  form = load_form(FORM.value, SEEDS.value and read_seeds(SEEDS.value))
  others = ()
  if AGAINST.value:
    others = board.read(AGAINST.value, form.name, form.seeds)
  compile_cache.cache_programs(progress.log)
  fill_form.run(form, FOLDER.value, others)


def read_seeds(words):
  """Return whole numbers as such; what is none is refused by the form."""
  return tuple(int(word) if word.isdecimal() else word for word in words)


if __name__ == '__main__':
  commandline.run(main)
