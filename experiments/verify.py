"""Check entries of the leaderboard, and compute their table again:

  fedjax-pfl verify results/entries/* --against=FedAvg

An entry is a folder with entry.json and clients.npz, the counts of each client.
The images are divided again; what does not fit is refused: fields, fingerprint,
seeds, tests of a client, a mean that is not that of the counts, more trainings
or gradients than the form allows. --rerun=fedavg, or your FILE.py:NAME, trains
the first entry again, with its settings. No code of an entry is run.
"""

import commandline
from absl import flags

AGAINST = flags.DEFINE_string(
  'against', '', 'with which others are compared; the first'
)
RERUN = flags.DEFINE_string('rerun', '', 'a method, or FILE.py:NAME')
WORKDIR = flags.DEFINE_string('workdir', 'runs/verify', 'where --rerun trains')


def main(folders):
  from configs.leaderboard import load_form
  from experiments.entries.verify import verify
  from fedjax_pfl.core import progress

  (method,) = commandline.load_methods([RERUN.value]) if RERUN.value else ('',)
  against, workdir = AGAINST.value, WORKDIR.value
  progress.log(verify(folders, load_form, against, method, workdir))


if __name__ == '__main__':
  commandline.run(main, arguments='folders of entries')
