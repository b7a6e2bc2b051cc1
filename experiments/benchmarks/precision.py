"""What a precision does to a training: its error against float64, its accuracy.

  python experiments/benchmarks/precision.py 16 3

FedAvg on the digits as configs/digits.py has it, so many rounds and seeds:
the norm of the error of the global model, over that of its change in float64,
after the first and after the last round; correct tests of 355 at the end. A
CPU has no tf32.
"""

import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import commandline

import fedjax_pfl as pfl
from fedjax_pfl.core import progress
from fedjax_pfl.federated.sampling import sample_cohorts
from fedjax_pfl.training.program import Evaluator

ROUNDS, SEEDS = int(sys.argv[1]), range(int(sys.argv[2]))
PRECISIONS = 'float32', *['tf32'] * (jax.default_backend() != 'cpu'), 'mixed'
CONFIG = f'{commandline.ROOT}/configs/digits.py:fedavg'


def trained(precision: str, seed: int) -> tuple[list[np.ndarray], int]:
  """Return the model at the start, after each round, and its correct tests."""
  given = {'precision': precision} if precision != 'float64' else {}
  settings = commandline.read_settings(CONFIG)
  with jax.enable_x64(precision == 'float64'):
    experiment = pfl.build_experiment({**settings, 'seed': seed, **given})
    (stage,), data = experiment.stages, experiment.train
    round_fn, key = pfl.make_round(stage.algorithm), jax.random.key(seed)
    with jax.enable_x64(False):  # the numbers drawn depend on it
      server, clients = pfl.begin(stage, data, key)
    if precision == 'float64':
      server = jax.tree.map(as_float64, server)
    models = [flat(server)]
    for number in range(ROUNDS):
      (cohort,) = sample_cohorts(key, number, 1, len(data.count), 5)
      server, clients, _ = round_fn(server, clients, cohort, data, key)
      models.append(flat(server))
    states = server, clients
    scores = Evaluator(experiment, key).clients(0, states, ('initial',))
  return models, int(scores['initial'].correct.sum())


def as_float64(leaf):
  is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
  return leaf.astype(jnp.float64) if is_float else leaf


def flat(server) -> np.ndarray:
  leaves = jax.tree.leaves(server.params)
  return np.concatenate(
    [np.asarray(leaf, np.float64).ravel() for leaf in leaves]
  )


progress.silence()
warnings.filterwarnings('ignore', 'Explicitly requested dtype float64')
exact = {seed: trained('float64', seed) for seed in SEEDS}
print('float64: correct', [right for _, right in exact.values()])
for precision in PRECISIONS:
  errors, correct = [], []
  for seed in SEEDS:
    models, right = trained(precision, seed)
    truth, norm = exact[seed][0], np.linalg.norm
    off = [norm(models[at] - truth[at]) for at in (1, -1)]
    moved = [norm(truth[at] - truth[0]) for at in (1, -1)]
    errors.append(np.divide(off, moved))
    correct.append(right)
  first, last = np.median(errors, axis=0)
  print(f'{precision}: error {first:.1e}, {last:.1e}; correct {correct}')
