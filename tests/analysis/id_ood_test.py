"""Own and other classes of a finished run, beside what the run wrote."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, client_of

from fedjax_pfl.analysis.id_ood import id_ood, score_by_class
from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.analysis.own_classes import owned_classes
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import replace
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')


def split_of(experiment, workdir):
  states = load_states(experiment, workdir, print)
  key = random_streams(experiment.settings.seed)['evaluation']
  return id_ood(experiment, *states, ('initial', 'finetuned'), key)


def test_own_and_other_make_up_what_the_run_evaluated(tiny_run):
  """Shards give a client tests of its own classes alone: its accuracy."""
  experiment, workdir = tiny_run
  splits = split_of(experiment, workdir)
  scores = run_dir.load_clients(workdir).scores
  for view, split in splits.items():
    want = 100 * scores[view].correct / scores[view].count
    np.testing.assert_allclose(split.own, want)
    assert np.isnan(split.other).all()


def test_every_test_image_is_on_one_side(tiny_run):
  """One test set and one model for all: the two sides have all its hits."""
  experiment, workdir = tiny_run
  everything = experiment.test._replace(
    index=jnp.tile(jnp.arange(40), (10, 1)), count=jnp.full(10, 40)
  )
  split = split_of(experiment._replace(test=everything), workdir)['initial']
  y = np.asarray(experiment.test.y)[:40]
  own = owned_classes(experiment.train, 10)[:, y].sum(1)  # [K] images
  hits = (split.own * own + split.other * (40 - own)) / 100
  server, _ = load_states(experiment, workdir, print)
  score = score_view(
    experiment.task.logits,
    server.params,
    client_of(everything, 0),
    experiment.task.normalise,
  )
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
