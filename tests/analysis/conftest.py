"""One tiny finished run, for all that is asked of runs."""

import helpers
import jax
import pytest
import threadpoolctl

from configs import fedbabu_digits
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.experiment_data import build_data
from fedjax_pfl.training.experiment_method import build_stages
from fedjax_pfl.training.loop import train

TASK = helpers.make_task(shape=(8, 8, 1), classes=10)


def make_experiment(**changes) -> Experiment:
  """Return what `build` returns, but for the model."""
  settings = fedbabu_digits.get_config().to_dict()
  settings['finetune']['epochs'] = (1,)
  settings |= {
    'num_clients': 10,
    'max_train_examples': 200,
    'client_fraction': 0.3,
    'rounds': 3,
    'local_epochs': 2,
    'batch_size': 8,
    'learning_rate': 0.02,
    **changes,
  }
  return Experiment(
    settings,
    *build_data(settings, lambda text: None),
    TASK,
    build_stages(settings, TASK),
    cohort_size(settings['num_clients'], settings['client_fraction']),
  )


@pytest.fixture(scope='session', autouse=True)
def one_thread():
  """Let t-SNE have one thread: several spin while a busy machine keeps one."""
  import sklearn.manifold  # noqa: F401, what is not loaded is not limited

  with threadpoolctl.threadpool_limits(1, 'openmp'):
    yield


@pytest.fixture(scope='session')
def tiny_run(tmp_path_factory):
  """Return an experiment and the directory of its finished run."""
  before = jax.config.values['jax_disable_most_optimizations']
  jax.config.update('jax_disable_most_optimizations', True)
  experiment = make_experiment()
  workdir = tmp_path_factory.mktemp('tiny') / 'run'
  train(experiment, workdir)
  jax.config.update('jax_disable_most_optimizations', before)
  return experiment, workdir
