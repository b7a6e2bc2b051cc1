"""Replayed rounds are those of the run; curves by class."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_experiment
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  build,
  client_of,
  make_data,
  make_task,
  refused,
)

from fedjax_pfl.analysis import class_curves, id_ood, replay
from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.core import trees
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import score_classes
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.evaluators import as_one_client
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_the_models_seen_are_those_of_the_method():
  """The server's, then what one epoch would send, and last what is sent."""

  def updated(train):
    algorithm = build('fedbabu', train=train)[0].algorithm
    server = algorithm.init_server(KEY(1))
    data = client_of(make_data(), 0)
    return server, jax.jit(algorithm.local_update)(server, (), data, KEY(2))

  def keep_models(models, data):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)

  server, (_, up, metrics) = updated(TRAIN._replace(watch=keep_models))
  _, (_, up_of_one_epoch, _) = updated(TRAIN._replace(epochs=1))
  start, middle, end = (trees.gather(metrics['watched'], e) for e in range(3))
  assert_close(start, server.params)
  # What is not sent has not moved.
  assert_close(middle, trees.combine(up_of_one_epoch, server.params))
  assert_close(end, trees.combine(up, server.params))


def losses_of(workdir):
  return [line['loss'] for line in run_dir.load_metrics(workdir)]


def test_a_replay_is_the_run(tiny_run):
  """Servers and losses are the run's; the last round ends where it did."""
  experiment, workdir = tiny_run
  images = replay.evenly_spaced(experiment.dataset.test, 0)
  rounds = [*replay.replay(experiment, images, 9)]
  server, _ = load_states(experiment, workdir, print)
  assert_close(rounds[-1].server, server)
  losses = [one.loss for one in rounds]
  np.testing.assert_allclose(losses, losses_of(workdir), rtol=1e-4)
  # The first answers of a round are those of the server before it.
  task, params = experiment.task, rounds[1].server.params
  test = as_one_client(images)
  want = score_classes(10, task.logits, params, test, task.normalise)
  correct = rounds[2].correct
  assert correct.shape == (3, 2 + 1, 10)
  assert (correct[:, 0] == np.asarray(want.correct)).all()
  trained = rounds[0].correct
  assert (trained[:, 1] != trained[:, 0]).any()


def test_a_replay_has_all_clients_where_the_run_had_them(tmp_path):
  """FedConcat infers from the models of all clients, then trains cohorts."""
  hp = {'clusters': 2, 'distributions': 'inferred', 'classifier_rounds': 1}
  experiment = make_experiment(
    algorithm='fedconcat',
    rounds=2,
    local_epochs=1,
    max_train_examples=80,
    hp={**hp, 'noise_inputs': 8},
    views=('initial',),
    eval_views=(),
  )
  train(experiment, tmp_path)
  images = replay.evenly_spaced(experiment.dataset.test, 8)
  rounds = [*replay.replay(experiment, images, 2)]
  assert [len(one.cohort) for one in rounds] == [10, 3]
  losses = [one.loss for one in rounds]
  np.testing.assert_allclose(losses, losses_of(tmp_path)[:2], rtol=1e-4)


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


def test_a_round_begins_where_an_epoch_repeats():
  """FedRep's rounds have epochs of the head, and one of the body."""
  epochs = np.array([0, 1, 2, 3, 3, 4, 5, 6])
  values = np.array([0.0, 40, 50, 60, 20, 60, 65, 70])
  split = id_ood.Split(values, np.full(8, np.nan))
  rows = class_curves.rows_of('fedrep', (epochs, split))
  assert [row[1] for row in rows] == [1] * 4 + [2] * 4
  assert rows[0] == ['fedrep', 1, 0, '0.0000', '']
  curves = {'fedrep': (epochs, id_ood.Split(values, values / 2))}
  panels, _ = class_curves.draw(curves)
  assert [key.value for panel in panels for key in panel.keys] == [
    '70.0',
    '35.0',
  ]
  for panel in panels:  # one upright line, at epoch 3
    lines = re.findall(r'd="M(\S+) \S+L(\S+) \S+" class="grid"', panel.svg)
    assert sum(one == other for one, other in lines) == 1


@pytest.mark.parametrize(
  ('number', 'rows'), [(0, range(7)), (9, range(7)), (3, (0, 2, 4))]
)
def test_images_are_evenly_spaced(number, rows):
  images = Images(np.arange(7)[:, None], np.arange(7) * 10)
  got = replay.evenly_spaced(images, number)
  assert got.x[:, 0].tolist() == [*rows]
  assert got.y.tolist() == [10 * row for row in rows]


def test_what_cannot_be_replayed():
  nothing = Images(np.zeros((0, 2, 2, 1)), np.zeros(0, int))
  assert 'no test images' in refused(replay.evenly_spaced, nothing, 3)
  watch = replay.make_watch(make_task(), jnp.arange(2))
  several = [{'fed': {}, 'loc': {}}]
  message = refused(watch, several, make_data())
  assert 'trains something else than one model' in message
