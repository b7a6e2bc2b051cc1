"""Print how much memory the models of all registered clients take:

  python experiments/memory.py --method=superfed --model=simple_cnn \\
      --clients=1543

One round of each stage of a method is run on synthetic images. What clients
keep is counted in their states; the peak is that of this process, with the
compiler's own memory.
"""

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags

from experiments import commandline

METHOD = flags.DEFINE_string('method', 'superfed', 'a method')
MODEL = flags.DEFINE_string('model', 'simple_cnn', 'name of the model')
CLIENTS = flags.DEFINE_integer('clients', 1543, 'registered clients', 1)
COHORT = flags.DEFINE_integer('cohort', 15, 'clients of a round', 1)
GIB = 2**30


def main(overrides):
  del overrides  # there is no config
  import jax

  from experiments.benchmarks.cases import Case
  from experiments.benchmarks.programs import make_task
  from fedjax_pfl.core import trees

  case = Case(MODEL.value, 1, 2, 20, method=METHOD.value)
  clients = run_rounds(case, CLIENTS.value, COHORT.value)
  params = jax.eval_shape(make_task(case).init, jax.random.key(0))
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  print(f'{case.method}, {case.model} of {count:,} parameters')
  kept = trees.num_bytes(clients) / GIB
  print(f'{CLIENTS.value:,} clients keep {kept:.2f} GiB')
  if stats := jax.devices()[0].memory_stats():
    peak = stats['peak_bytes_in_use'] / GIB
    print(f'peak on {jax.devices()[0]}: {peak:.2f} GiB')
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
  print(f'peak of the process: {peak:.2f} GiB')


def run_rounds(case, number, cohort):
  """Return the states of all clients after one round of every stage."""
  import jax
  import jax.numpy as jnp

  from experiments.benchmarks.programs import make_stages, share_clients
  from fedjax_pfl.federated.rounds import begin, make_round

  stages, data = make_stages(case, rounds=2), share_clients(case, number)
  key = jax.random.key(0)
  server, clients = begin(stages[0], data, key)
  for stage in stages:
    if stage is not stages[0]:
      server, clients = stage.initialize(server, clients, data)
    ids = jnp.arange(min(cohort, number))
    ready = stage.prepare_data(server, data)
    round_fn = make_round(stage.algorithm)
    server, clients, _ = round_fn(server, clients, ids, ready, key)
  return jax.block_until_ready((server, clients))[1]


if __name__ == '__main__':
  commandline.run(main)
