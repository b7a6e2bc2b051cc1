"""FedBABU learns: a small network on synthetic images, clients of two classes.

Four classes, so that chance is 25 %; all margins are wide.
"""

import numpy as np
import optax
import pytest
from helpers import KEY, build, make_task

from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.data.client_data import stack_clients
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.images import Synthetic
from fedjax_pfl.data.partition import partition
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.federated.cohort import sample_cohorts
from fedjax_pfl.federated.rounds import init_states, make_round, make_rounds

pytestmark = pytest.mark.usefixtures('quick_compiler')
CLIENTS, COHORT, ROUNDS, CLASSES = 8, 4, 30, 4
SHAPE = (8, 8, 1)


def mean_accuracies():
  """Return the mean accuracy over clients in percent: initial, finetuned."""
  spec = Synthetic(SHAPE, CLASSES, 640, 320)
  dataset = load_dataset('synthetic', synthetic=spec)
  indices = partition(
    'shards',
    dataset.train.y,
    dataset.test.y,
    num_clients=CLIENTS,
    num_classes=CLASSES,
    shards_per_client=2,
    seed=0,
  )
  train = stack_clients(dataset.train, indices[0])
  test = stack_clients(dataset.test, indices[1])
  task = make_task(24, 0.02, SHAPE, CLASSES, normalised=False)
  hp = {
    'train': LocalTraining(ROUNDS, 2, 20, optax.constant_schedule(0.1)),
    'finetune': Finetuning((3,), learning_rate=0.02, batch_size=20),
  }
  algorithm = build('fedbabu', task, **hp)[0].algorithm
  states = init_states(algorithm, train, KEY(0))
  cohorts = sample_cohorts(KEY(1), 0, ROUNDS, CLIENTS, COHORT)
  *states, metrics = make_rounds(make_round(algorithm))(
    *states, cohorts, train, KEY(2)
  )
  assert np.isfinite(metrics['losses']).all()
  views = ('initial', 'finetuned')
  evaluate = make_evaluate(algorithm, task.normalise, views)
  scores = evaluate_clients(evaluate, views, *states, train, test, KEY(3))
  return [
    100 * float(np.mean(scores[view].correct / scores[view].count))
    for view in views
  ]


def test_the_global_model_is_far_above_chance_and_finetuning_helps():
  initial, finetuned = mean_accuracies()
  assert initial > 40
  assert finetuned > initial + 10
  assert finetuned > 65
