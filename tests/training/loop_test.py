"""Runs from their config to their files, on a model that compiles quickly."""

import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler import counting
from helpers import assert_same_bits
from small_runs import (
  ROUNDS,
  STOPS,
  TASK,
  make_experiment,
  scores_of,
  server_of,
  snapshot,
  with_algorithm,
)

from fedjax_pfl.client.global_model import Server
from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import Settings, replace
from fedjax_pfl.training.advance import Cadence, cadence
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.round_metrics import mean_metrics

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(scope='module')
def fedbabu(tmp_path_factory, quick_compiler):
  """Return an experiment and the directory of its finished run."""
  experiment = make_experiment(eval_global_model=True)
  workdir = tmp_path_factory.mktemp('fedbabu') / 'run'
  train(experiment, workdir)
  return experiment, workdir


# ---- when what is done


def test_the_next_stop_is_the_nearest_of_all():
  every = Cadence(log=2, evaluate=3, save=4)
  stops, done = [], 0
  while done < ROUNDS:
    done = every.next_stop(done, ROUNDS)
    stops.append(done)
  assert stops == STOPS
  assert every.next_stop(7, 100) == 8


def test_zero_is_a_choice_that_suits_the_run():
  def cadences(rounds, **changes):
    return cadence(replace(Settings(), changes), rounds)

  assert cadences(320) == (1, 20, 20)  # a CPU logs every round
  assert cadences(5) == (1, 1, 1)
  assert cadences(320, eval_every=7) == (1, 7, 7)
  given = {'log_every': 5, 'eval_every': 7, 'checkpoint_every': 9}
  assert cadences(320, **given) == (5, 7, 9)


def test_lines_and_checkpoints_follow_the_cadence(fedbabu):
  _, workdir = fedbabu
  lines = run_dir.load_metrics(workdir)
  assert [line['round'] for line in lines] == STOPS
  evaluated = [line['round'] for line in lines if 'initial/accuracy' in line]
  assert evaluated == [3, 6, 7]  # and at the end
  assert checkpoint.steps(workdir / 'checkpoints') == [4, 7]


def test_every_round_is_the_same_program(fedbabu, tmp_path):
  """What all runs share was compiled for the run of the fixture."""
  del fedbabu
  more = make_experiment(rounds=9, log_every=1, views=('initial',))
  with counting() as names:
    train(more, tmp_path)
  # The last evaluation hands out the models, too.
  assert names == ['jit(rounds)', 'jit(evaluate)', 'jit(evaluate)']


# ---- what is written


def test_a_line_holds_what_a_person_wants_to_see(fedbabu):
  _, workdir = fedbabu
  for line in run_dir.load_metrics(workdir):
    assert line['stage'] == 'fedbabu'
    assert 0 < line['loss'] < 10
    assert line['images_per_second'] > 0
    if 'initial/accuracy' in line:
      assert 0 <= line['initial/accuracy'] <= 100
      assert 0 <= line['initial/pooled'] <= 100
  last = run_dir.load_metrics(workdir)[-1]
  initial = run_dir.load_result(workdir)['views']['initial']
  assert last['initial/accuracy'] == initial['mean']
  assert last['initial/pooled'] == initial['pooled']


def test_fedbabu_uploads_what_fedavg_does_less_the_head(fedbabu, tmp_path):
  _, workdir = fedbabu
  fedavg = make_experiment(algorithm='fedavg', rounds=2, views=('initial',))
  train(fedavg, tmp_path / 'fedavg')
  theirs = run_dir.load_metrics(tmp_path / 'fedavg')[0]
  ours = run_dir.load_metrics(workdir)[0]
  assert theirs['round'] == ours['round'] == 2
  params = jax.eval_shape(lambda: TASK.init(jax.random.key(0)))
  messages = 2 * 3  # rounds x clients of a cohort
  assert theirs['bytes_up'] == messages * trees.num_bytes(params)
  head = trees.num_bytes(trees.select(params, TASK.is_head))
  assert head > 0
  assert ours['bytes_up'] == theirs['bytes_up'] - messages * head
  assert ours['bytes_down'] == theirs['bytes_down']
  assert ours['bytes_down'] >= theirs['bytes_up']


def test_the_result_names_what_ran(fedbabu):
  experiment, workdir = fedbabu
  result = run_dir.load_result(workdir)
  assert result['status'] == 'finished'
  assert (result['algorithm'], result['dataset']) == ('fedbabu', 'digits')
  assert result['rounds'] == ROUNDS and result['seconds'] > 0
  assert list(result['views']) == ['initial', 'finetuned']
  clients = run_dir.load_clients(workdir)
  assert clients.ids.tolist() == list(range(10))
  assert np.array_equal(clients.train_count, experiment.train.count)
  assert clients.train_classes.shape == (10, 10)
  assert np.array_equal(clients.train_classes.sum(1), experiment.train.count)
  assert np.array_equal(clients.test_classes.sum(1), experiment.test.count)
  for scores in clients.scores.values():
    assert np.array_equal(scores.count, experiment.test.count)
    assert np.all(scores.correct <= scores.count)


def test_the_best_rounds_on_the_test_set_stand_apart(fedbabu):
  _, workdir = fedbabu
  lines = [
    line for line in run_dir.load_metrics(workdir) if 'initial/pooled' in line
  ]
  result = run_dir.load_result(workdir)
  assert list(result['test_best']) == ['initial']  # of eval_views
  best = result['test_best']['initial']
  pooled = [line['initial/pooled'] for line in lines]
  winner = lines[pooled.index(max(pooled))]
  assert best['together']['round'] == winner['round']
  assert best['together']['pooled'] == winner['initial/pooled']
  assert best['together']['mean'] == winner['initial/accuracy']
  # Only the number of correct answers is stored for every client.
  unknown = {'loss', 'top5', 'ece', 'mce'}
  keys = result['views']['initial'].keys()
  assert best['together'].keys() - {'round'} == best['each'].keys()
  assert best['each'].keys() == keys - unknown
  # Each has its own round: at least what any one round has for all.
  assert best['each']['mean'] >= max(line['initial/accuracy'] for line in lines)
  assert best['each']['pooled'] >= winner['initial/pooled']


def test_the_global_model_is_evaluated_on_the_whole_test_set(fedbabu):
  experiment, workdir = fedbabu
  params, _ = load_model(workdir / 'model' / 'global.npz')
  images = experiment.dataset.test
  got = run_dir.load_result(workdir)['global']
  size = len(images.y)
  assert got['count'] == size
  test = ClientData(
    jnp.asarray(images.x),
    jnp.asarray(images.y),
    jnp.arange(size),
    jnp.asarray(size),
  )
  want = score_view(
    TASK.logits, jax.tree.map(jnp.asarray, params), test, TASK.normalise
  )
  assert got['accuracy'] == pytest.approx(100 * int(want.correct) / size)
  assert got['top5'] == pytest.approx(100 * int(want.top5) / size)
  for name in ('loss', 'ece', 'mce'):
    assert got[name] == pytest.approx(float(getattr(want, name)), rel=1e-4)
  lines = [
    line for line in run_dir.load_metrics(workdir) if 'global/ece' in line
  ]
  assert [line['round'] for line in lines] == [3, 6, 7]
  assert lines[-1]['global/accuracy'] == got['accuracy']
  curve = [line['global/accuracy'] for line in lines]
  assert got['last10']['mean'] == pytest.approx(np.mean(curve))
  assert got['last10']['std'] == pytest.approx(np.std(curve))
  assert got['last10']['evaluations'] == 3


def assert_same_answers(params, experiment, client, stored):
  """Evaluate a model on the test examples of a client, and compare."""
  test = experiment.test
  one = test._replace(index=test.index[client], count=test.count[client])
  params = jax.tree.map(jnp.asarray, params)
  scores = score_view(TASK.logits, params, one, TASK.normalise)
  assert scores.correct == stored.correct[client]
  np.testing.assert_allclose(scores.loss, stored.loss[client], rtol=1e-5)


def test_stored_models_have_the_stored_accuracy(fedbabu):
  experiment, workdir = fedbabu
  stored = scores_of(workdir)
  names = sorted(path.stem for path in (workdir / 'model').iterdir())
  assert names == ['finetuned_client0', 'finetuned_client3', 'global']
  params, about = load_model(workdir / 'model' / 'global.npz')
  assert about['view'] == 'initial' and about['rounds'] == ROUNDS
  for client in range(10):
    assert_same_answers(params, experiment, client, stored['initial'])
  for client in (0, 3):
    path = workdir / 'model' / f'finetuned_client{client}.npz'
    params, about = load_model(path)
    assert (about['view'], about['client']) == ('finetuned', client)
    assert_same_answers(params, experiment, client, stored['finetuned'])


def test_clients_that_lack_examples_are_in_no_mean(tmp_path):
  """Kept and counted: their rows are in clients.npz all the same."""
  experiment = make_experiment(
    partition='dirichlet',
    dirichlet_beta=0.01,
    test_partition='iid',
    client_fraction=0.1,  # cohorts of one: some hold no example at all
    aggregation='examples',
    log_every=1,
  )
  result = train(experiment, tmp_path)
  train_count, count = experiment.train.count, experiment.test.count
  used = (train_count > 0) & (count > 0)
  assert 0 < used.sum() < (count > 0).sum() <= 10
  for view, scores in scores_of(tmp_path).items():
    assert scores.count.shape == (10,)
    numbers = result['views'][view]
    shares = 100 * scores.correct[used] / scores.count[used]
    np.testing.assert_allclose(numbers['mean'], shares.mean(), rtol=1e-6)
    assert numbers['num_clients'] == used.sum()
    assert numbers['num_left_out'] == 10 - used.sum()
  lines = run_dir.load_metrics(tmp_path)
  losses = [line['loss'] for line in lines]
  assert len(losses) == ROUNDS and 0 in losses and max(losses) > 0.5
  assert lines[-1]['initial/accuracy'] == result['views']['initial']['mean']


def test_the_mean_loss_is_that_of_the_clients_that_trained():
  metrics = {'loss': np.array([[2.0, 0.0], [4.0, 9.0]]), 'losses': np.ones(3)}
  trained = np.array([[True, False], [True, True]])
  sent, nobody = np.ones((2, 2), bool), np.zeros((2, 2), bool)
  assert mean_metrics(metrics, trained, sent) == {'loss': 5.0}
  sent[1] = False
  assert mean_metrics(metrics, trained, sent) == {'loss': 2.0}
  # All fail: they trained, so that 0 would be a wrong number.
  assert np.isnan(mean_metrics(metrics, trained, nobody)['loss'])
  no_loss = {'loss': np.zeros((2, 2))}
  assert mean_metrics(no_loss, nobody, sent) == {'loss': 0.0}


# ---- what does not change the numbers


def test_the_cadence_moves_no_bit(fedbabu, tmp_path):
  experiment, workdir = fedbabu
  other = make_experiment(log_every=1, checkpoint_every=1, eval_views=())
  train(other, tmp_path / 'run')
  assert [line['round'] for line in run_dir.load_metrics(tmp_path / 'run')] == [
    *range(1, ROUNDS + 1)
  ]
  assert_same_bits(
    server_of(other, tmp_path / 'run'), server_of(experiment, workdir)
  )
  assert_same_bits(scores_of(tmp_path / 'run'), scores_of(workdir))


def test_a_run_of_no_round_evaluates_what_it_begins_with(tmp_path):
  experiment = make_experiment(
    rounds=0, init_from='elsewhere', views=('initial',)
  )
  first = TASK.init(jax.random.key(42))
  experiment = with_algorithm(
    experiment, init_server=lambda key: Server(jnp.zeros((), int), first)
  )
  result = train(experiment, tmp_path)
  assert result['rounds'] == 0 and result['test_best'] == {}
  assert 0 <= result['views']['initial']['mean'] <= 100
  assert not checkpoint.steps(tmp_path / 'checkpoints')
  params, _ = load_model(tmp_path / 'model' / 'global.npz')
  assert_same_bits(jax.tree.map(jnp.asarray, params), first)


def test_a_model_of_each_client_is_no_global_model(tmp_path):
  experiment = make_experiment(
    rounds=0, init_from='elsewhere', views=('initial',)
  )
  last = experiment.train.index[-1, 0]

  def views(server, client, data, rng):
    unlike = 1e-3 * (data.index[0] == last)  # all others are like client 0
    return {'initial': jax.tree.map(lambda leaf: leaf + unlike, server.params)}

  train(with_algorithm(experiment, personalize=views), tmp_path)
  names = sorted(path.stem for path in (tmp_path / 'model').iterdir())
  assert names == ['initial_client0', 'initial_client3']


# ---- runs that end early


def break_round(experiment, broken):
  """Return the experiment whose server becomes NaN in round `broken`."""
  aggregate = experiment.stages[-1].algorithm.aggregate

  def spoil(server, uploads, senders):
    after = aggregate(server, uploads, senders)
    factor = jnp.where(after.round == broken, jnp.nan, 1.0)
    params = jax.tree.map(lambda leaf: factor * leaf, after.params)
    return after._replace(params=params)

  return with_algorithm(experiment, aggregate=spoil)


def test_nan_stops_the_run_and_names_the_rounds(tmp_path):
  experiment = break_round(make_experiment(checkpoint_every=2, eval_every=7), 4)
  for _ in range(2):  # the same command again fails alike
    with pytest.raises(BadInput) as caught:
      train(experiment, tmp_path)
    message = str(caught.value)
    assert (
      "got 'NaN or infinity in rounds 3 to 4 of fedbabu: round 4, in the "
      f'server state; seed 0, {tmp_path}' in message
    )
    assert 'Choices: a smaller learning_rate, debug=True, to name' in message
    assert 'metrics up to round 2 are stored' in message
    assert 'the last checkpoint is that of round 2.' in message
    assert 'Likely cause: ' in message
    lines = run_dir.load_metrics(tmp_path)
    assert [line['round'] for line in lines] == [2]
    step, server = server_of(experiment, tmp_path)
    assert step == 2
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))
    assert not (tmp_path / run_dir.RESULT).exists()


def test_a_learning_rate_that_is_too_high_is_a_sentence(tmp_path):
  experiment = make_experiment(algorithm='fedavg', learning_rate=1e30)
  with pytest.raises(BadInput) as caught:
    train(experiment, tmp_path)
  message = str(caught.value)
  assert re.search(
    r'in rounds 1 to 2 of fedavg: round 1, in the loss of clients \d, \d',
    message,
  )
  assert 'there is no checkpoint yet' in message
  assert not (tmp_path / run_dir.METRICS).exists()


def test_a_finished_run_is_not_changed(fedbabu, capsys):
  experiment, workdir = fedbabu
  before = snapshot(workdir)
  capsys.readouterr()
  assert train(experiment, workdir) == run_dir.load_result(workdir)
  assert capsys.readouterr().out == f'{workdir} is finished: nothing to do.\n'
  assert snapshot(workdir) == before


def test_a_run_ends_without_metrics_that_were_deleted(fedbabu, tmp_path):
  """As the sentence about damaged metrics offers; the last round is saved."""
  experiment, workdir = fedbabu
  copy = shutil.copytree(workdir, tmp_path / 'copy')
  for name in (run_dir.RESULT, run_dir.METRICS):
    (copy / name).unlink()
  before, again = run_dir.load_result(workdir), train(experiment, copy)
  assert again['views'] == before['views'] and before['global']['last10']
  assert again['global'] == {**before['global'], 'last10': {}}


def test_the_directory_of_another_config_is_refused(fedbabu):
  experiment, workdir = fedbabu
  before = snapshot(workdir)
  other = make_experiment(
    shards_per_client=4, batch_size=9, eval_global_model=True
  )
  with pytest.raises(BadInput) as caught:
    train(other, workdir)
  message = str(caught.value)
  assert (
    "config: got {'shards_per_client': 4, 'batch_size': 9}, expected" in message
  )
  assert "where these are {'shards_per_client': 2, 'batch_size': 8}" in message
  assert 'Choices: another --workdir, the settings of that run' in message
  assert 'Likely cause: a setting was changed' in message
  assert snapshot(workdir) == before
  assert experiment.settings.data.shards_per_client == 2
