"""Make an entry of the leaderboard of a method that `compare` has trained:

  fedjax-pfl compare --form=demo --methods=mine.py:Mine
  fedjax-pfl submit --from=runs/compare --method=Mine \\
      --authors='A. Author' --paper=none --code=ADDRESS --out=entries/mine

The entry is a folder: entry.json, and right answers and tests of every client.
It is checked as `verify` does before it is written. Another framework writes
both files itself (docs/leaderboard.md).
"""

import commandline
from absl import flags

FROM = flags.DEFINE_string('from', None, 'the folder of a comparison')
METHOD = flags.DEFINE_string('method', None, 'its name in the table')
PARTITION = flags.DEFINE_string('partition', '', 'of a form with several')
AUTHORS = flags.DEFINE_string('authors', None, 'of the entry')
PAPER = flags.DEFINE_string('paper', None, 'its address, or: none')
CODE = flags.DEFINE_string('code', '', 'address; of a method here: the commit')
OUT = flags.DEFINE_string('out', None, 'a new folder')


def main():
  from configs.leaderboard import load_form
  from experiments.entries.entries import submit
  from fedjax_pfl.core import progress

  flags = {'authors': AUTHORS, 'paper': PAPER, 'code': CODE}
  stated = {name: flag.value for name, flag in flags.items()}
  method, partition = METHOD.value, PARTITION.value
  submit(FROM.value, load_form, method, partition, stated, OUT.value)
  progress.log(f'The entry is in {OUT.value}; `verify` checks it.')


if __name__ == '__main__':
  commandline.run(main, required=['from', 'method', 'authors', 'paper', 'out'])
