"""Runs from their config to their files, on a model that compiles quickly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler import counting
from helpers import assert_same_bits
from small_runs import (
  ROUNDS,
  TASK,
  make_experiment,
  scores_of,
  server_of,
  with_algorithm,
)

from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.client.global_model import Server
from fedjax_pfl.core import trees
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.training.loop import num_images, train
from fedjax_pfl.training.program import Program

pytestmark = pytest.mark.usefixtures('quick_compiler')
NO_ROUND = {'rounds': 0, 'init_from': 'elsewhere', 'views': ('initial',)}


@pytest.fixture(scope='module')
def program(quick_compiler):
  return Program(make_experiment(eval_global_model=True))


@pytest.fixture(scope='module')
def fedbabu(tmp_path_factory, program):
  """Return an experiment and the directory of its finished run."""
  workdir = tmp_path_factory.mktemp('fedbabu') / 'run'
  train(program.experiment, workdir, program)
  return program.experiment, workdir


@pytest.mark.parametrize('sampling', ['fixed', 'poisson'])
@pytest.mark.parametrize('double', [False, True])
def test_cohorts_follow_from_the_seed(tmp_path, sampling, double):
  """Others with another seed, the same with the same; whatever thread draws."""

  class Drawn(Exception):
    """The cohorts of the first call; the run ends before it compiles rounds."""

  def drawn(name, seed):
    changes = {'num_clients': 40, 'client_fraction': 0.1}
    experiment = make_experiment(seed=seed, sampling=sampling, **changes)

    def draw(key, first, rounds):
      assert jax.config.jax_enable_x64 == double
      raise Drawn(experiment.sampler.draw(key, 0, 20).tolist())

    sampler = experiment.sampler._replace(draw=draw)
    with pytest.raises(Drawn) as found, jax.enable_x64(double):
      train(experiment._replace(sampler=sampler), tmp_path / name)
    return found.value.args[0]

  assert drawn('first', 0) == drawn('again', 0) != drawn('other', 1)


# ---- when what is done


def test_lines_and_checkpoints_follow_the_cadence(fedbabu):
  """Every 2, 3 and 4 rounds; evaluated before and at the end, too."""
  _, workdir = fedbabu
  lines = run_dir.load_metrics(workdir)
  assert [line['round'] for line in lines] == [0, 2, 3, 4, 6, 7]
  evaluated = [line['round'] for line in lines if 'initial/accuracy' in line]
  assert evaluated == [0, 3, 6, 7]
  assert checkpoint.steps(workdir / 'checkpoints') == [4, 7]


def test_the_cadence_moves_no_bit(fedbabu, program, tmp_path):
  """0 is a choice that suits the run: of few rounds, every round."""
  experiment, workdir = fedbabu
  other = make_experiment(log_every=0, checkpoint_every=0, eval_every=0)
  train(other, tmp_path / 'run', program)
  lines = run_dir.load_metrics(tmp_path / 'run')
  assert [line['round'] for line in lines] == [*range(ROUNDS + 1)]
  assert checkpoint.steps(tmp_path / 'run' / 'checkpoints') == [6, 7]
  assert_same_bits(
    server_of(other, tmp_path / 'run'), server_of(experiment, workdir)
  )
  assert_same_bits(scores_of(tmp_path / 'run'), scores_of(workdir))


def test_every_round_is_the_same_program(fedbabu, tmp_path):
  """What all runs share was compiled for the run of the fixture."""
  del fedbabu
  more = make_experiment(rounds=9, log_every=1, views=('initial',))
  with counting() as names:
    train(more, tmp_path)
  # The last evaluation hands out the models, too.
  assert names == ['jit(evaluate)', 'jit(rounds)', 'jit(evaluate)']


# ---- what is written


def test_the_result_names_what_ran(fedbabu):
  experiment, workdir = fedbabu
  result = run_dir.load_result(workdir)
  assert result['status'] == 'finished'
  assert (result['algorithm'], result['dataset']) == ('fedbabu', 'digits')
  # Of these the config has none.
  assert result['hp'] == {'trainable': 'body', 'finetune_from': 'global'}
  assert result['rounds'] == ROUNDS and result['seconds'] > 0
  assert list(result['views']) == ['initial', 'finetuned']
  assert list(result['test_best']) == ['initial']  # of eval_views
  clients = run_dir.load_clients(workdir)
  assert clients.ids.tolist() == list(range(10))
  assert np.array_equal(clients.train_classes.sum(1), experiment.train.count)
  assert np.array_equal(clients.test_classes.sum(1), experiment.test.count)
  for scores in clients.scores.values():
    assert np.array_equal(scores.count, experiment.test.count)
  names = sorted(path.stem for path in (workdir / 'model').iterdir())
  assert names == ['finetuned_client0', 'finetuned_client3', 'global']
  # Without unseen clients nothing is added.
  assert clients.unseen is None and 'unseen' not in result


def test_the_global_model_is_evaluated_on_the_whole_test_set(fedbabu):
  experiment, workdir = fedbabu
  params, _ = load_model(workdir / 'model' / 'global.npz')
  params, test = jax.tree.map(jnp.asarray, params), experiment.test
  size = len(experiment.dataset.test.y)
  whole = test._replace(index=jnp.arange(size), count=jnp.asarray(size))
  want = score_view(TASK.logits, params, whole, TASK.normalise)
  got = run_dir.load_result(workdir)['global']
  assert got['count'] == size
  assert got['accuracy'] == pytest.approx(100 * int(want.correct) / size)
  assert got['top5'] == pytest.approx(100 * int(want.top5) / size)
  for name in ('loss', 'ece', 'mce'):
    assert got[name] == pytest.approx(float(getattr(want, name)), rel=1e-4)
  lines = run_dir.load_metrics(workdir)
  curve = [line['global/accuracy'] for line in lines if 'global/ece' in line]
  assert len(curve) == 4 and curve[-1] == got['accuracy']
  assert got['last10']['mean'] == pytest.approx(np.mean(curve[1:]))


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
  losses = [line['loss'] for line in lines if line['round']]
  assert len(losses) == ROUNDS and 0 in losses and max(losses) > 0.5


def test_a_family_of_views_and_scores_by_the_batch(tmp_path):
  """Views guess one class; only whole batches of the training's size count."""
  guesses = {'mix_0.0': 0, 'mix_0.5': 1, 'initial': 2}
  experiment = with_algorithm(
    make_experiment(
      **{**NO_ROUND, 'views': tuple(guesses)},
      eval_views=(),
      save_clients=(),
      scoring='whole_batches',
      batch_size=3,
    ),
    personalize=lambda server, client, data, rng: guesses,
    predict=lambda guess, x, mask: (
      jnp.zeros((len(x), 10)).at[:, guess].set(1.0)
    ),
  )
  result, test = train(experiment, tmp_path), experiment.test
  scores = scores_of(tmp_path)
  for view, guess in guesses.items():
    want = [
      np.sum(test.y[own[: count - count % 3]] == guess)
      for own, count in zip(test.index, test.count.tolist(), strict=True)
    ]
    np.testing.assert_allclose(scores[view].correct, want, atol=1e-5)
  # The best of a family stands apart, and is no view.
  assert list(result['test_best_view']) == ['mix']


# ---- runs of no round


@pytest.mark.parametrize('select', ['last', 'validation'])
def test_a_run_of_no_round_evaluates_what_it_begins_with(tmp_path, select):
  first = TASK.init(jax.random.key(42))
  experiment = with_algorithm(
    make_experiment(**NO_ROUND, select=select, validation_fraction=0.2),
    init_server=lambda key: Server(jnp.zeros((), int), first),
  )
  result = train(experiment, tmp_path)
  assert result['rounds'] == 0 and result['test_best'] == {}
  assert 0 <= result['views']['initial']['mean'] <= 100
  # What is exported and analysed.
  server, _ = load_states(experiment, tmp_path, pytest.fail)
  assert_same_bits(server.params, first)
  params, _ = load_model(tmp_path / 'model' / 'global.npz')
  assert_same_bits(jax.tree.map(jnp.asarray, params), first)


# ---- a stage that says otherwise


def test_full_participation_prepared_data_and_initial_broadcast(tmp_path):
  experiment = make_experiment(rounds=2, log_every=1, save_clients=())
  (stage,) = experiment.stages
  prepared = []

  def prepare_data(server, data):
    prepared.append(int(server.round))
    return data._replace(count=jnp.minimum(data.count, 8))  # one batch

  stage = stage._replace(
    full_participation=True,
    initial_broadcast=lambda server: server.params['body'],
    prepare_data=prepare_data,
  )
  train(experiment._replace(stages=(stage,)), tmp_path)
  assert prepared == [0]
  _, *lines = run_dir.load_metrics(tmp_path)  # the first is of round 0
  assert [line['num_steps'] for line in lines] == [1, 1]
  params = jax.eval_shape(lambda: TASK.init(jax.random.key(0)))
  clients, clock = 10, 4
  head, body = (trees.num_bytes(params[part]) for part in ('head', 'body'))
  down = [line['bytes_down'] for line in lines]
  assert down == [clients * (clock + head + body), clients * (clock + head)]


def test_images_are_counted_by_steps():
  """Clients of 50 and 7 examples in batches of 20: two passes, two steps."""
  counts = np.array([[50, 7, 0]])
  assert num_images(np.array([[6, 2, 0]]), counts, 20) == 2 * 57
  assert num_images(np.array([[2, 1, 0]]), counts, 20) == 40 + 7
