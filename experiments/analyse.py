"""Accuracy on a client's own classes and on others (Table 20 of FedBABU):

  fedjax-pfl analyse --run=runs/a --run=runs/b \\
      --out=runs/id_ood.pdf

It is measured before and after personalisation: a figure, its CSV and a table.
A field of the runs' configs can be replaced: --config.data_dir=/data. Run
directories are read, never written.
"""

import commandline
from absl import flags

RUN = flags.DEFINE_multi_string('run', [], 'a run directory')
OUT = flags.DEFINE_string('out', None, 'the figure: .png, .pdf or .svg')
CLIENTS = flags.DEFINE_integer(
  'clients', 0, 'the first clients; 0 = all', lower_bound=0
)


def main(overrides):
  from experiments.reproduction.id_ood import analyse
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  compile_cache.cache_programs(progress.log)
  edit, log = commandline.make_edit(overrides), progress.log
  path = analyse(RUN.value, OUT.value, CLIENTS.value, log, edit)
  log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')


if __name__ == '__main__':
  commandline.run(main, required=['run', 'out'], packages=['matplotlib'])
