"""Print the tables of docs/performance.md about accelerators:

  python experiments/accelerator_tables.py --platform=cuda --devices=4
  python experiments/accelerator_tables.py --platform=tpu --tables=models \\
      --labels=convnet4,simple_cnn

Rows are printed as they are compiled, in Markdown. Nothing is run on a device:
these are the compiler's numbers. `make accelerators` runs it twice.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags, logging

from experiments import commandline
from experiments.accelerators import environment

PLATFORM = flags.DEFINE_string('platform', 'cuda', 'tpu or cuda')
TOPOLOGY = flags.DEFINE_string('topology', '', 'as of compile_for.py')
DEVICES = flags.DEFINE_integer('devices', 4, 'devices of the mesh; 1: none', 1)
TABLES = flags.DEFINE_list('tables', ['models', 'methods'], 'which of them')
LABELS = flags.DEFINE_list('labels', [], 'models or methods; all if not given')


def main(overrides):
  del overrides  # the configs are those of the tables
  logging.set_verbosity(logging.WARNING)
  environment.prepare(PLATFORM.value)  # before jax is imported
  import jax

  from experiments.accelerators import report, standard, targets

  targets.check_platform(PLATFORM.value)
  topology = TOPOLOGY.value or targets.DEFAULTS[PLATFORM.value]
  where = report.Where(PLATFORM.value, topology, DEVICES.value)
  targets.devices_of(*where)
  labels = standard.choose(TABLES.value, LABELS.value)
  for table, chosen in labels.items():
    print(f'{where.device.name}, {table}; jax {jax.__version__}\n')
    print(standard.markdown(standard.HEADS))
    print(standard.markdown(['---'] * len(standard.HEADS)), flush=True)
    for label in chosen:
      for row in standard.rows(where, table, label, log_progress):
        print(standard.markdown(row), flush=True)
    print(flush=True)


def log_progress(text: str) -> None:
  """Print to stderr."""
  print(f'{text} ..', file=sys.stderr, flush=True)


if __name__ == '__main__':
  commandline.run(main)
