"""Print how much memory the models of all registered clients take:

  python experiments/memory.py --method=superfed --model=simple_cnn \\
      --clients=1543

Two rounds of a method are run on synthetic images. What clients keep is
counted in their states; the peak is that of this process, with the compiler's
own memory.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags, logging

from experiments import commandline

METHOD = flags.DEFINE_string('method', 'superfed', 'a method')
MODEL = flags.DEFINE_string('model', 'simple_cnn', 'name of the model')
CLIENTS = flags.DEFINE_integer('clients', 1543, 'registered clients', 1)
COHORT = flags.DEFINE_integer('cohort', 15, 'clients of a round', 1)


def main(overrides):
  del overrides  # there is no config
  logging.set_verbosity(logging.WARNING)
  from experiments.benchmarks import client_memory

  lines = client_memory.measure(
    METHOD.value, MODEL.value, CLIENTS.value, COHORT.value
  )
  print(*lines, sep='\n')


if __name__ == '__main__':
  commandline.run(main)
