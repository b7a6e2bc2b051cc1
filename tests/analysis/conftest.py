"""One tiny finished run for all analyses."""

import jax
import pytest
import small_runs

from fedjax_pfl.training.loop import train


@pytest.fixture(scope='session')
def tiny_run(tmp_path_factory):
  """Return an experiment and the directory of its finished run."""
  before = jax.config.values['jax_disable_most_optimizations']
  jax.config.update('jax_disable_most_optimizations', True)
  every = {'log_every': 1, 'checkpoint_every': 1, 'save_clients': (0,)}
  experiment = small_runs.make_experiment(
    rounds=3, local_epochs=2, eval_views=(), **every
  )
  workdir = tmp_path_factory.mktemp('tiny') / 'run'
  train(experiment, workdir)
  jax.config.update('jax_disable_most_optimizations', before)
  return experiment, workdir
