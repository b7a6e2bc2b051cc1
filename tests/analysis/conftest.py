"""One tiny finished run for all analyses."""

import helpers
import jax
import pytest
import threadpoolctl

from configs import digits
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import Experiment, build_stages
from fedjax_pfl.training.build_data import build_data
from fedjax_pfl.training.loop import train

TASK = helpers.make_task(shape=(8, 8, 1), classes=10)


def make_experiment(**changes) -> Experiment:
  """Return what `build` returns, but for the model."""
  config = digits.get_config('fedbabu').to_dict()
  config['finetune']['epochs'] = (1,)
  config |= {
    'num_clients': 10,
    'max_train_examples': 200,
    'client_fraction': 0.3,
    'rounds': 3,
    'local_epochs': 2,
    'batch_size': 8,
    'learning_rate': 0.02,
    **changes,
  }
  settings = parse_config(config)
  return Experiment(
    settings,
    *build_data(settings, lambda text: None),
    TASK,
    build_stages(settings, TASK),
    cohort_size(settings.data.num_clients, settings.training.client_fraction),
  )


@pytest.fixture(scope='session', autouse=True)
def one_thread():
  """Give t-SNE one thread: several would wait actively on a busy machine."""
  import sklearn.manifold  # noqa: F401, only loaded libraries are limited

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
