"""Runs of several stages, each with states and views of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import TASK, make_experiment

from fedjax_pfl.core import trees
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.round_numbers import num_images

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.mark.long
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
  lines = run_dir.load_metrics(tmp_path)
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
