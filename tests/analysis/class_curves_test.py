"""Replayed rounds are those of the run; curves by class."""

import numpy as np
import pytest
from helpers import (
  assert_close,
)

from fedjax_pfl.analysis import class_curves
from fedjax_pfl.analysis.open_run import evenly_spaced, load_states
from fedjax_pfl.evaluation.metrics import score_classes
from fedjax_pfl.training.evaluators import as_one_client

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_a_replay_is_the_run(tiny_run):
  """The last round ends where that of the run did."""
  experiment, workdir = tiny_run
  images = evenly_spaced(experiment.dataset.test, 0)
  rounds = [*class_curves.replay(experiment, images, 9)]
  server, _ = load_states(experiment, workdir, print)
  assert_close(rounds[-1].server, server)
  # The first answers of a round are those of the server before it.
  task, params = experiment.task, rounds[1].server.params
  test = as_one_client(images)
  want = score_classes(10, task.logits, params, test, task.normalise)
  assert (rounds[2].correct[:, 0] == np.asarray(want.correct)).all()
  trained = rounds[0].correct
  assert (trained[:, 1] != trained[:, 0]).any()


def test_saw_tooth_by_hand():
  """Rounds of one, one and two epochs, two classes of 4 and 2 images.

  Round 0: client a owns class 0, client b owns both; 1: a and a; 2: a alone.
  """
  correct = [
    [[[2, 1], [4, 0]], [[2, 1], [3, 0]]],
    [[[0, 2], [4, 1]], [[0, 2], [2, 0]]],
    [[[1, 1], [2, 0], [3, 0]]],
  ]  # each [C, tau + 1, Y]
  owned = [[1, 0], [1, 1]], [[1, 0], [1, 0]], [[1, 0]]
  rounds = [
    (np.array(one), np.array(own))
    for one, own in zip(correct, owned, strict=True)
  ]
  epochs, split = class_curves.saw_tooth(rounds, np.array([4, 2]))
  assert epochs.tolist() == [0, 1, 1, 2, 2, 3, 4]
  # a: 2/4, 4/4; b: 3/6, 3/6. Then a: 0/4, 4/4 and 0/4, 2/4; 1/4, 2/4, 3/4.
  np.testing.assert_allclose(split.own, [50, 75, 0, 75, 25, 50, 75])
  # b has no other class: a alone, 1/2, 0/2; then 2/2, 1/2 and 2/2, 0/2.
  np.testing.assert_allclose(split.other, [50, 0, 100, 25, 50, 0, 0])
