"""A run whose last three clients come after training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from small_runs import make_experiment, restored

from fedjax_pfl.evaluation.new_clients import with_new_clients
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
K, U = 8, 3
SETTINGS = {
  'algorithm': 'fedper',
  'num_clients': K,
  'unseen_clients': U,
  'shards_per_client': 5,
  'client_fraction': 0.6,
  'rounds': 2,
  'learning_rate': 0.2,
  'views': ('initial', 'finetuned'),
  'eval_views': (),
  'log_every': 2,
  'eval_every': 2,
  'checkpoint_every': 2,
}


def make(**changes):
  return make_experiment(**{**SETTINGS, **changes})


@pytest.fixture(scope='module')
def finished(tmp_path_factory, quick_compiler):
  program = Program(make())
  workdir = tmp_path_factory.mktemp('unseen') / 'run'
  return program, workdir, train(program.experiment, workdir, program)


def test_they_are_in_no_cohort_and_the_result_has_them_apart(finished):
  """client_fraction is of those that take part: 3 of 5, who have states."""
  program, workdir, result = finished
  experiment = program.experiment
  assert experiment.cohort_size == 3
  states = jax.tree.leaves(restored(experiment, workdir).clients)
  assert (
    {len(leaf) for leaf in states} == {K - U} == {len(experiment.train.count)}
  )
  clients = run_dir.load_clients(workdir)
  unseen = clients.unseen
  assert clients.ids.tolist() == [0, 1, 2, 3, 4] and unseen.unseen is None
  assert unseen.ids.tolist() == [5, 6, 7]
  for view in SETTINGS['views']:
    for group, own in ((result['views'], clients), (result['unseen'], unseen)):
      want = summarise(own.scores[view], own.train_count)
      want['worst_decile'] = None  # of few tests each: no number in a file
      assert group[view] == want
      assert group[view]['num_clients'] == len(own.ids)
  assert (
    unseen.train_count.tolist()
    == experiment.data.splits['unseen_train'].count.tolist()
  )


def test_their_scores_are_those_by_hand(finished):
  """What it does in its one round: evaluation/new_clients_test.py."""
  program, workdir, _ = finished
  experiment = program.experiment
  algorithm = with_new_clients(experiment.stages[-1]).algorithm
  server = restored(experiment, workdir).server
  key = random_streams(experiment.settings.seed)['evaluation']
  splits = experiment.data.splits
  train_data, test = splits['unseen_train'], splits['unseen_test']

  @jax.jit
  def logits_of(index, count, x, mask, rng):
    own = train_data._replace(index=index, count=count)
    views = algorithm.personalize(server, (), own, rng)
    x = experiment.task.normalise(x, rng)
    return {
      view: algorithm.predict(views[view], x, mask)
      for view in SETTINGS['views']
    }

  scores = run_dir.load_clients(workdir).unseen.scores
  for place in range(U):
    rows = test.index[place]
    rng = jax.random.fold_in(jax.random.fold_in(key, K - U), place)
    own = train_data.index[place], train_data.count[place]
    mask = jnp.asarray(np.arange(len(rows)) < test.count[place], jnp.float32)
    found = logits_of(*own, test.x[rows], mask, rng)
    for view, logits in found.items():
      hits = (logits.argmax(1) == test.y[rows])[: test.count[place]]
      assert scores[view].correct[place] == int(hits.sum())
  correct = [scores[view].correct.tolist() for view in SETTINGS['views']]
  assert max(correct[1]) > 0  # no test of zeros alone


def test_their_examples_do_not_reach_the_server(finished, tmp_path):
  """With other images and labels, all that training leaves has its bits."""
  program, workdir, result = finished
  experiment = program.experiment
  unseen = experiment.data.splits['unseen_train']
  x, y, *_ = experiment.train
  own = np.asarray(unseen.index), unseen.count
  rows = np.concatenate([row[:count] for row, count in zip(*own, strict=True)])
  pool = {
    'x': x.at[rows].set(255 - x[rows]),
    'y': y.at[rows].set((y[rows] + 1) % 10),
  }
  poisoned = experiment.with_data(
    train=experiment.train._replace(**pool),
    unseen_train=unseen._replace(**pool),
  )
  other = train(poisoned, tmp_path, program)
  one, two = (restored(experiment, path) for path in (workdir, tmp_path))
  assert_same_bits(one._replace(seconds=()), two._replace(seconds=()))
  assert other['views'] == result['views']
  assert other['unseen'] != result['unseen']
