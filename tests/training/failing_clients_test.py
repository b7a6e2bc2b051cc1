"""Runs whose clients fail or diverge: left out, named, counted, continued."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import (
  TASK,
  assert_same_run,
  make_experiment,
  record,
  restored,
  server_of,
  spoil_upload,
  with_algorithm,
)

from fedjax_pfl.client.step_check import Diverged, check_step
from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.cohort import sample_cohorts
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
CHEAP = {'views': ('initial',), 'eval_views': ()}
ROUNDS, CLIENTS, RATE = 4, 6, 0.4
DROPPING = {
  'algorithm': 'fedper',
  'num_clients': CLIENTS,
  'shards_per_client': 5,
  'client_fraction': 0.5,
  'rounds': ROUNDS,
  'dropout_rate': RATE,
  'log_every': 1,
  'eval_every': ROUNDS,
  'checkpoint_every': 2,
  **CHEAP,
}
DIVERGING = 3
SMALL = {
  'algorithm': 'fedavg',
  'num_clients': 5,
  'client_fraction': 1.0,
  'rounds': ROUNDS,
  'log_every': 2,
  'eval_every': 4,
  'checkpoint_every': 2,
  **CHEAP,
}
BODY = trees.num_bytes(
  trees.select(
    jax.eval_shape(TASK.init, jax.random.key(0)), trees.invert(TASK.is_head)
  )
)


# ---- clients that fail


@pytest.fixture(scope='module')
def dropping(tmp_path_factory, quick_compiler):
  """Return a run; the loss that its clients report is how many examples."""
  experiment = make_experiment(**DROPPING)
  update = experiment.stages[0].algorithm.local_update

  def local_update(down, own, data, rng):
    own, up, metrics = update(down, own, data, rng)
    return own, up, {**metrics, 'loss': data.count.astype(float)}

  experiment = with_algorithm(experiment, local_update=local_update)
  return record(experiment, tmp_path_factory.mktemp('dropout'), [2])


@pytest.fixture(scope='module')
def sent():
  """Return who is in the cohorts, and who of them sends: [T, C]."""
  keys, fold_in = random_streams(0), jax.random.fold_in
  cohorts = np.asarray(sample_cohorts(keys['cohorts'], 0, ROUNDS, CLIENTS, 3))

  def draw(number, client):
    key = fold_in(fold_in(keys['rounds'], number), client)
    return jax.random.uniform(fold_in(key, 2**31 - 1))

  drawn = [[draw(n, k) for k in own] for n, own in enumerate(cohorts.tolist())]
  return cohorts, np.array(drawn) >= RATE


def test_what_is_sent_is_counted(dropping, sent):
  """Those that fail have downloaded, and upload nothing; after a kill, too."""
  train(dropping.experiment, dropping.folder / 'killed2')
  assert_same_run(dropping.folder / 'killed2', dropping.path)
  lines = run_dir.load_metrics(dropping.path)
  count = np.asarray(dropping.experiment.train.count)
  assert 0 < sent[1].sum() < sent[1].size
  for line, cohort, own in zip(lines, *sent, strict=True):
    assert line['dropped'] == (~own).sum()
    assert line['bytes_up'] == own.sum() * BODY
    assert line['bytes_down'] == own.size * (BODY + 4)  # and the clock
    assert line['loss'] == pytest.approx(count[cohort[own]].mean())


def test_clients_that_always_fail_keep_their_state(dropping, sent):
  cohorts, has_sent = sent
  others = np.setdiff1d(np.arange(CLIENTS), cohorts[has_sent])
  assert others.size
  clients = restored(dropping.experiment, dropping.path).clients
  heads = clients['head']['kernel']
  same = [np.array_equal(head, heads[others[0]]) for head in heads]
  assert np.flatnonzero(same).tolist() == others.tolist()


@pytest.mark.long
def test_a_client_whose_nan_is_never_sent_is_not_excluded(sent, tmp_path):
  """Nor does it reach the server."""
  cohorts, has_sent = sent
  number, place = np.argwhere(~has_sent)[0]
  experiment = make_experiment(**DROPPING, on_divergence='exclude')
  spoilt = spoil_upload(experiment, int(cohorts[number, place]), [number])
  train(spoilt, tmp_path)
  lines = run_dir.load_metrics(tmp_path)
  assert [line['excluded'] for line in lines] == [0] * ROUNDS
  assert [line['dropped'] for line in lines] == (~has_sent).sum(1).tolist()


# ---- clients that diverge, and are left out


@pytest.fixture(scope='module')
def excluded(tmp_path_factory, quick_compiler):
  """Return a run without client 3 in rounds 1 and 2.

  Its losses are finite: what it sends is not.
  """
  experiment = make_experiment(**SMALL, on_divergence='exclude')
  spoilt = spoil_upload(experiment, DIVERGING, [0, 1])
  return record(spoilt, tmp_path_factory.mktemp('excluded'), [2])


def test_a_run_continues_without_a_client_and_says_so(excluded, capsys):
  train(excluded.experiment, excluded.folder / 'again')
  output = capsys.readouterr().out.splitlines()
  for number in (1, 2):
    assert (
      f'Round {number}: excluded client 3, where the loss, the state or the '
      'upload is NaN or infinite.'
    ) in output
  one, other = lines = run_dir.load_metrics(excluded.path)
  assert [line['excluded'] for line in lines] == [2, 0]
  assert one['excluded_clients'] == [[1, DIVERGING], [2, DIVERGING]]
  assert 'excluded_clients' not in other
  assert one['bytes_up'] * 10 == other['bytes_up'] * 8
  assert one['bytes_down'] == other['bytes_down']
  assert all(np.isfinite(line['loss']) for line in lines)
  train(excluded.experiment, excluded.folder / 'killed2')
  assert_same_run(excluded.folder / 'killed2', excluded.path)


# ---- runs that stop


def spoil_server(experiment, number):
  """Return the experiment whose server becomes NaN in a round."""
  aggregate = experiment.stages[-1].algorithm.aggregate

  def spoil(server, uploads, senders):
    after = aggregate(server, uploads, senders)
    factor = jnp.where(after.round == number, jnp.nan, 1.0)
    params = jax.tree.map(lambda leaf: factor * leaf, after.params)
    return after._replace(params=params)

  return with_algorithm(experiment, aggregate=spoil)


def spoil_losses(experiment):
  """Return the experiment all of whose losses, and nothing else, are NaN."""
  update = experiment.stages[-1].algorithm.local_update

  def local_update(down, own, data, rng):
    own, up, metrics = update(down, own, data, rng)
    return own, up, {**metrics, 'loss': jnp.nan * metrics['loss']}

  return with_algorithm(experiment, local_update=local_update)


STOPS = {
  'the server': (
    lambda: spoil_server(make_experiment(**SMALL), 4),
    'rounds 3 to 4 of fedavg: round 4, in the server state',
    2,
  ),
  'an upload': (
    lambda: spoil_upload(make_experiment(**SMALL), DIVERGING, [2]),
    'rounds 3 to 4 of fedavg: round 3, in the state or the upload of client 3',
    2,
  ),
  'the losses of all': (
    lambda: spoil_losses(
      make_experiment(**{**SMALL, 'num_clients': 25}, on_divergence='exclude')
    ),
    'rounds 1 to 2 of fedavg: round 1, in the loss of clients 0, 1, 2, 3, 4, '
    '5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 5 more',
    0,
  ),
}


@pytest.mark.parametrize('case', STOPS)
def test_nan_stops_the_run_and_names_the_rounds(case, tmp_path):
  make, words, stored = STOPS[case]
  experiment = make()
  for _ in range(2):  # the same command again fails alike
    with pytest.raises(BadInput) as caught:
      train(experiment, tmp_path)
    message = str(caught.value)
    assert f"got 'NaN or infinity in {words}; seed 0, {tmp_path}" in message
    assert 'Choices: a smaller learning_rate, debug=True, to name' in message
    assert ('exclude' in message) == (case != 'the losses of all')
    assert f'metrics up to round {stored} are stored' in message
    assert (tmp_path / run_dir.METRICS).exists() == bool(stored)
    assert not (tmp_path / run_dir.RESULT).exists()
    if not stored:
      assert 'there is no checkpoint yet' in message
      continue
    assert 'the last checkpoint is that of round 2.' in message
    assert [line['round'] for line in run_dir.load_metrics(tmp_path)] == [2]
    step, server = server_of(experiment, tmp_path)
    assert step == 2
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))


# ---- the first bad step


@pytest.mark.long
def test_debugging_continues_a_run_and_names_the_step(tmp_path):
  """After the last good checkpoint, on the loop backend."""
  plain = make_experiment(**SMALL)
  update = plain.stages[-1].algorithm.local_update
  first = plain.train.index[DIVERGING, 0]

  def diverge(down, own, data, rng):
    """Train from a model that makes the loss NaN, in the third round."""
    diverges = (down.round == 2) & (data.index[0] == first)
    factor = jnp.where(diverges, jnp.nan, 1.0)
    params = jax.tree.map(lambda leaf: factor * leaf, down.params)
    return update(down._replace(params=params), own, data, rng)

  def make(**changes):
    experiment = make_experiment(**SMALL, **changes)
    return with_algorithm(experiment, local_update=diverge)

  with pytest.raises(BadInput, match='round 3, in the loss of client 3;'):
    train(make(), tmp_path)
  with pytest.raises(BadInput) as caught:
    train(make(debug=True), tmp_path)
  assert str(caught.value).startswith(
    "training: got 'NaN or infinity: client 3, round 3 of fedavg, step 1 of "
    "epoch 1, in its loss', expected finite numbers. Choices: "
  )


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
