"""Own and other classes: by hand, and of a finished run."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, client_of

from fedjax_pfl.analysis.id_ood import measure, score_by_class, split_scores
from fedjax_pfl.analysis.open_run import OpenRun, load_states
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.evaluation.metrics import ClassScores, score_view
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.settings import replace

pytestmark = pytest.mark.usefixtures('quick_compiler')


def split_of(experiment, workdir):
  run = OpenRun('fedbabu', workdir, experiment.settings, experiment)
  return measure(run, 0, print)


def test_every_test_image_is_on_one_side(tiny_run):
  """One test set and one model for all: the two sides have all its hits."""
  experiment, workdir = tiny_run
  everything = experiment.test._replace(
    index=jnp.tile(jnp.arange(40), (10, 1)), count=jnp.full(10, 40)
  )
  split = split_of(experiment._replace(test=everything), workdir)['initial']
  y = np.asarray(experiment.test.y)[:40]
  held = label_counts_of_clients(experiment.train, 10)
  own = (held > 0)[:, y].sum(1)  # [K] images
  hits = (split.own * own + split.other * (40 - own)) / 100
  server, _ = load_states(experiment, workdir, print)
  task, tests = experiment.task, client_of(everything, 0)
  score = score_view(task.logits, server.params, tests, task.normalise)
  assert 0 < score.correct < 40
  np.testing.assert_allclose(hits, np.full(10, score.correct))
  assert split.own.min() < split.own.max()


def test_the_tests_on_which_clients_adapt_are_not_scored(tiny_run):
  """Per-FedAvg adapts on half of a client's tests, as the run did."""
  experiment, workdir = tiny_run
  states = load_states(experiment, workdir, print)
  settings = replace(experiment.settings, adapt_on='test_half')
  halved = experiment._replace(settings=settings)
  scores, _ = score_by_class(halved, *states, ('initial',), KEY(0))
  query = np.asarray(halved.eval_data[1].count)
  assert (query < np.asarray(experiment.test.count)).any()
  np.testing.assert_array_equal(scores['initial'].count.sum(1), query)


def test_accuracy_of_two_clients_by_hand():
  """Client 0 owns classes 0 and 2: (3 + 1) / (4 + 4), and 1 / 2 of class 1.

  Client 1 owns all: 100 (3 + 0 + 4) / (4 + 2 + 4), and nothing else.
  """
  correct = np.array([[3, 1, 1], [3, 0, 4]])
  owned = np.array([[1, 0, 1], [1, 1, 1]]) > 0
  split = split_scores(ClassScores(correct, np.array([4, 2, 4])), owned)
  np.testing.assert_allclose(accuracies(split.own), [50, 70])
  np.testing.assert_allclose(accuracies(split.other), [50, np.nan])
