"""Clients that diverge: named, excluded, or traced to the first bad step."""

import contextlib
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  ALGORITHMS,
  KEY,
  assert_close,
  build,
  make_data,
  make_task,
  round_of,
)
from small_runs import (
  make_experiment,
  restored,
  server_of,
  snapshot,
  spoil_upload,
  with_algorithm,
)

from fedjax_pfl.client.step_check import Diverged, check_step
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.communication import Communication
from fedjax_pfl.federated.failures import (
  FINITE,
  HAS_SENT,
  SERVER_FINITE,
  with_failures,
)
from fedjax_pfl.federated.rounds import begin, make_rounds
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import divergence
from fedjax_pfl.training.divergence import find_divergence
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.round_metrics import message_bytes, training_numbers

pytestmark = pytest.mark.usefixtures('quick_compiler')
COHORT = jnp.array([0, 3, 5])
DIVERGING = 3
SMALL = {
  'algorithm': 'fedavg',
  'num_clients': 5,
  'client_fraction': 1.0,
  'rounds': 4,
  'views': ('initial',),
  'eval_views': (),
  'log_every': 2,
  'eval_every': 4,
}


def diverging_task():
  """Return the task of the tests, to which a white image is NaN."""
  task = make_task()

  def spoil(x, features):
    white = x.min((1, 2, 3)) > 0.3
    return jnp.where(white[:, None], jnp.nan, features)

  def train_outputs(params, batch, key):
    out = task.train_outputs(params, batch, key)
    return out._replace(
      features=spoil(batch.x, out.features), logits=spoil(batch.x, out.logits)
    )

  def loss(params, batch, key):
    log_p = jax.nn.log_softmax(train_outputs(params, batch, key).logits)
    own = jnp.take_along_axis(log_p, batch.y[:, None], 1)[:, 0]
    return -(batch.mask * own).sum() / jnp.maximum(batch.mask.sum(), 1)

  return task._replace(
    train_outputs=train_outputs,
    loss=loss,
    features=lambda params, x, mask: spoil(x, task.features(params, x, mask)),
  )


def diverging_data():
  """Return clients, one of which has the white image at the pool's end."""
  data = make_data(counts=(7, 5, 4, 6, 9, 8))
  white = len(data.x) - 1
  return data._replace(index=data.index.at[DIVERGING, 2].set(white))


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=() if name == 'scaffold' else pytest.mark.long)
    for name in ALGORITHMS
  ],
)
def test_clients_that_diverge_are_as_if_not_sampled(name):
  """For every stage of every method: the server, and every client's rows."""
  stages, data = build(name, diverging_task()), diverging_data()
  states, states_without = (begin(stages[0], data, KEY(1)),) * 2
  for number, stage in enumerate(stages):
    if number:
      states = stage.initialize(*states, data)
      states_without = states
    prepared = stage.prepare_data(states[0], data)
    failing = with_failures(stage, excludes_diverged=True)
    rounds_fn = make_rounds(round_of(failing, clients_per_chunk=1))
    *states, metrics = rounds_fn(*states, COHORT[None], prepared, KEY(2))
    metrics = jax.tree.map(np.asarray, metrics)
    assert metrics[FINITE].tolist() == [(COHORT != DIVERGING).tolist()]
    found = find_divergence(
      COHORT[None], metrics, excludes=not stage.full_participation
    )
    if stage.full_participation:
      assert found == (0, (DIVERGING,), 'in the loss of')
      return
    others, round_fn = COHORT[COHORT != DIVERGING], round_of(stage)
    *want, _ = round_fn(*states_without, others, prepared, KEY(2))
    assert_close(tuple(states), tuple(want))
    assert found is None
    numbers = training_numbers(metrics, np.ones((1, 3)), 1, 1.0)
    assert np.isfinite(list(numbers.values())).all()


def test_what_diverged_first_is_named():
  """The loss before the state, a client before the server."""
  metrics = {
    'loss': np.array([[1.0, 2.0], [1.0, np.nan], [np.nan, np.nan]]),
    FINITE: np.array([[True, True], [False, False], [False, False]]),
    SERVER_FINITE: np.array([True, False, False]),
  }
  cohorts = np.array([[4, 7], [5, 8], [4, 8]])
  assert find_divergence(cohorts, metrics, False) == (1, (8,), 'in the loss of')
  metrics[FINITE][1, 0] = True  # one client is left, and the server is bad
  found = find_divergence(cohorts, metrics, excludes=True)
  assert found == (1, (), 'in the server state')
  metrics[SERVER_FINITE][1] = True
  found = find_divergence(cohorts, metrics, excludes=True)
  assert found == (2, (4, 8), 'in the loss of')
  metrics['loss'] = np.ones((3, 2))
  found = find_divergence(cohorts, metrics, excludes=False)
  assert found == (1, (8,), 'in the state or the upload of')
  metrics[FINITE][:] = metrics[SERVER_FINITE][:] = True
  assert find_divergence(cohorts, metrics, excludes=False) is None


@pytest.fixture(scope='module')
def excluded(tmp_path_factory, quick_compiler):
  """Return a run without client 3 in rounds 1 and 2, and its output.

  Its losses are finite: what it sends is not.
  """
  experiment = make_experiment(
    **SMALL, on_divergence='exclude', checkpoint_every=2
  )
  workdir, output = tmp_path_factory.mktemp('excluded') / 'run', io.StringIO()
  with contextlib.redirect_stdout(output):
    train(spoil_upload(experiment, DIVERGING, [0, 1]), workdir)
  return workdir, output.getvalue()


def test_a_run_continues_without_a_client_and_logs_it(excluded):
  workdir, output = excluded
  for number in (1, 2):
    line = (
      f'Round {number}: excluded client 3, where the loss, the state or the '
      'upload is NaN or infinite.'
    )
    assert line in output.splitlines()
  lines = run_dir.load_metrics(workdir)
  assert [line['excluded'] for line in lines] == [2, 0]
  assert lines[0]['excluded_clients'] == [[1, DIVERGING], [2, DIVERGING]]
  assert 'excluded_clients' not in lines[1]
  assert all(np.isfinite(line['loss']) for line in lines)
  assert run_dir.load_result(workdir)['status'] == 'finished'


@pytest.mark.long
def test_without_divergence_no_bit_changes(tmp_path):
  """And the number of those left out is the one thing that is added."""
  servers, lines = [], []
  for diverged in ('stop', 'exclude'):
    experiment = make_experiment(**SMALL, on_divergence=diverged)
    train(experiment, tmp_path / diverged)
    servers.append(server_of(experiment, tmp_path / diverged))
    lines.append(run_dir.load_metrics(tmp_path / diverged))
  assert jax.tree.all(jax.tree.map(np.array_equal, *servers))
  for one, other in zip(*lines, strict=True):
    assert other.pop('excluded') == 0
    assert one.keys() == other.keys() and one['loss'] == other['loss']


@pytest.mark.long
def test_clients_on_the_host_are_as_they_were(tmp_path):
  """Their rows are written in place: those of a diverged call are restored."""
  states = []
  for placement in ('device', 'host'):
    small = {**SMALL, 'algorithm': 'fedper', 'clients_placement': placement}
    experiment = make_experiment(**small, on_divergence='exclude')
    experiment = spoil_upload(experiment, DIVERGING, [1])
    train(experiment, tmp_path / placement)
    states.append(restored(experiment, tmp_path / placement)[:2])
  assert_close(*(jax.tree.map(np.asarray, state) for state in states))


@pytest.mark.long
def test_where_all_clients_diverge_the_run_stops(tmp_path):
  experiment = make_experiment(
    **SMALL, on_divergence='exclude', learning_rate=1e30
  )
  with pytest.raises(BadInput) as caught:
    train(experiment, tmp_path)
  message = str(caught.value)
  assert 'round 1, in the loss of clients 0, 1, 2, 3, 4' in message
  assert "on_divergence='exclude'" not in message


# ---- the first bad step


@pytest.mark.long
def test_debugging_replays_the_rounds_and_names_the_step(tmp_path):
  """After the last good checkpoint, on the loop backend; nothing is written."""
  update = make_experiment(**SMALL).stages[-1].algorithm.local_update

  def diverge(down, own, data, rng):
    """Train on images that make the loss NaN, in the third round."""
    diverges = (down.round == 2) & (data.index[0] == first)
    factor = jnp.where(diverges, jnp.nan, 1.0)
    params = jax.tree.map(lambda leaf: factor * leaf, down.params)
    return update(down._replace(params=params), own, data, rng)

  def make(**changes):
    experiment = make_experiment(**SMALL, checkpoint_every=2, **changes)
    return with_algorithm(experiment, local_update=diverge)

  first = make_experiment(**SMALL).train.index[DIVERGING, 0]
  with pytest.raises(
    BadInput, match=f'round 3, in the loss of client {DIVERGING};'
  ):
    train(make(), tmp_path)
  before = snapshot(tmp_path)
  with pytest.raises(BadInput) as caught:
    train(make(debug=True), tmp_path)
  assert str(caught.value).startswith(
    f"training: got 'NaN or infinity: client {DIVERGING}, round 3 of fedavg, "
    "step 1 of epoch 1, in its loss', expected finite numbers. Choices: "
  )
  assert snapshot(tmp_path) == before


def test_a_replay_of_a_finished_run_is_refused(excluded):
  experiment = make_experiment(
    **SMALL, on_divergence='exclude', checkpoint_every=2, debug=True
  )
  with pytest.raises(BadInput, match='whose rounds are all done'):
    train(experiment, excluded[0])


def test_debugging_names_gradients_and_parameters():
  finite, bad = {'w': jnp.ones(2)}, {'w': jnp.array([1.0, jnp.inf])}
  check_step(0, 0, jnp.ones(()), finite, finite)
  for parts, words in (
    ((jnp.ones(()), bad, bad), 'step 3 of epoch 2, in its gradient (w)'),
    ((jnp.ones(()), finite, bad), 'in its parameters after it (w)'),
    ((jnp.array(jnp.nan), finite, finite), 'step 3 of epoch 2, in its loss'),
  ):
    with pytest.raises(Diverged, match=re.escape(words)):
      check_step(1, 2, *parts)


def test_many_clients_are_cut_short():
  assert divergence.name_clients(tuple(range(25))).endswith('18, 19 and 5 more')
  assert divergence.name_clients((7,)) == ' client 7'


def test_clients_that_are_excluded_upload_nothing():
  sent = np.array([[True, False]])
  sizes = Communication(state=0, up=10, down=100, initial=0)
  got = message_bytes({FINITE: sent, HAS_SENT: sent}, sizes, 7)
  assert got == {'bytes_down': 207, 'bytes_up': 10}
