"""Say when personalisation helps, of sets whose clients exist and three others:

  python experiments/gains.py             docs/natural.md and its figure
  python experiments/gains.py --measure   first how unlike the clients are

The first needs results/leaderboard/ alone. --measure needs the prepared sets
(docs/howto/natural.md), fits forests to each client's rows, and writes
results/leaderboard/unlike.csv.
"""

import commandline
from absl import flags

MEASURE = flags.DEFINE_bool('measure', False, 'write unlike.csv again')
# Forms whose counts are stored; of lite one set, without equal gradients.
FORMS = {
  **{'natural': None, 'natural_numbers': None, 'demo': None},
  'lite': 'digits s=4',
}


def main():
  from configs.leaderboard import load_form
  from experiments.natural import gains, unlike
  from fedjax_pfl.core import atomic_files, progress

  if MEASURE.value:
    lines = []
    for name, partition in FORMS.items():
      form = load_form(name)
      form = form.only(partition) if partition else form
      lines += unlike.lines_of(form, progress.log)
    path = commandline.ROOT / gains.UNLIKE
    atomic_files.write_csv(path, unlike.HEADER, lines)
  written = gains.write(commandline.ROOT)
  progress.log(f'Written: {", ".join(map(str, written))}')


if __name__ == '__main__':
  commandline.run(main, packages=['matplotlib'])
