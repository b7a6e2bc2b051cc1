"""What a run evaluates, and what it writes of that, without training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import make_experiment, with_algorithm

from fedjax_pfl.core.types import Scores
from fedjax_pfl.federated.rounds import init_states
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config
from fedjax_pfl.training.best_rounds import init_test_best
from fedjax_pfl.training.evaluators import Evaluator
from fedjax_pfl.training.finalize import Evaluated, write_result
from fedjax_pfl.training.state import State, Training

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_clients_adapt_on_half_of_their_tests_and_are_evaluated_on_the_rest():
  experiment = with_algorithm(
    make_experiment(adapt_on='test_half'),
    personalize=lambda server, client, data, rng: {'initial': data.count},
    predict=lambda view, x, mask: jnp.zeros((len(x), 10)),
  )
  (stage,) = experiment.stages
  states = init_states(stage.algorithm, experiment.train, jax.random.key(0))
  adapted_on = np.zeros(10, int)

  def record(ids, models):
    adapted_on[ids] = models['initial']

  evaluator = Evaluator(experiment, jax.random.key(0))
  scores = evaluator.clients(0, states, ('initial',), record)['initial']
  tests = np.asarray(experiment.test.count)
  np.testing.assert_array_equal(adapted_on, tests // 2)
  np.testing.assert_array_equal(scores.count, tests - tests // 2)


def test_scores_by_the_batch_are_of_the_size_of_the_training():
  """The best five are 0 to 4; of its tests a client sees 3, or 6, .."""
  experiment = with_algorithm(
    make_experiment(scoring='whole_batches', batch_size=3),
    personalize=lambda server, client, data, rng: {'initial': data.count},
    predict=lambda view, x, mask: jnp.zeros((len(x), 10)),
  )
  evaluator = Evaluator(experiment, jax.random.key(0))
  scores = evaluator.clients(0, ((), ()), ('initial',))['initial']
  test = experiment.test
  want = [
    np.sum(np.asarray(test.y[own[: count - count % 3]]) < 5)
    for own, count in zip(test.index, test.count.tolist(), strict=True)
  ]
  np.testing.assert_allclose(scores.top5, want)
  assert sum(want) > 5 and np.any(test.count % 3 > 0)
  assert np.array_equal(scores.count, test.count)


def test_the_best_of_a_family_of_views_stands_apart(tmp_path):
  experiment = make_experiment()
  count = np.asarray(experiment.test.count)
  scores = {
    'mix_0.0': Scores(0 * count, count),
    'mix_0.5': Scores(count, count),
    'initial': Scores(count, count),
  }
  run = run_dir.open_run(
    tmp_path, to_config(experiment.settings), data='digits'
  )
  state = State((), (), np.zeros(()), init_test_best(experiment))
  rest = dict.fromkeys(Training._fields)
  training = Training(
    **{**rest, 'experiment': experiment, 'run': run, 'state': state}
  )
  write_result(training, Evaluated(scores, {}, None), 1.0)
  result = run_dir.load_result(tmp_path)
  assert 'global' not in result
  assert list(result['test_best_view']) == ['mix']
  best = result['test_best_view']['mix']
  assert best['together']['view'] == 'mix_0.5'
  assert best['together']['mean'] == best['each']['mean'] == 100
