"""Runs whose clients fail, diverge or are slow: counted, named, continued."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from small_runs import (
  TASK,
  assert_same_run,
  make_experiment,
  record,
  server_of,
  spoil_upload,
  with_algorithm,
)

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import FINITE, SERVER_FINITE
from fedjax_pfl.federated.sampling import sample_cohorts
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.divergence import check_finite
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROUNDS, CLIENTS, RATE, DIVERGING = 4, 6, 0.4, 3
SMALL = {
  **{'algorithm': 'fedavg', 'num_clients': 5, 'client_fraction': 1.0},
  **{'rounds': ROUNDS, 'log_every': 2, 'eval_every': ROUNDS},
  **{'checkpoint_every': 2, 'views': ('initial',), 'eval_views': ()},
}
HALF = SMALL | {'algorithm': 'fedper', 'num_clients': CLIENTS}
HALF |= {'shards_per_client': 5, 'client_fraction': 0.5}
DROPPING = HALF | {'dropout_rate': RATE, 'on_divergence': 'exclude'}
BODY = trees.num_bytes(
  trees.select(
    jax.eval_shape(TASK.init, jax.random.key(0)), trees.invert(TASK.is_head)
  )
)


# ---- clients that drop out, and one that diverges and is left out


@pytest.fixture(scope='module')
def drawn():
  """Return who is in the cohorts, and who of them does not drop out: [T, C].

  And who diverges in which round: a client that would send.
  """
  keys, fold_in = random_streams(0), jax.random.fold_in
  cohorts = np.asarray(sample_cohorts(keys['cohorts'], 0, ROUNDS, CLIENTS, 3))

  def draw(number, client):
    key = fold_in(fold_in(keys['rounds'], number), client)
    return jax.random.uniform(fold_in(key, 2**31 - 1))

  rows = enumerate(cohorts.tolist())
  draws = [[draw(n, k) for k in clients] for n, clients in rows]
  stays = np.array(draws) >= RATE
  number = 2 + int(stays[2:].sum(1).argmax())
  return cohorts, stays, (int(cohorts[number][stays[number]][0]), number)


@pytest.fixture(scope='module')
def run(drawn, tmp_path_factory, quick_compiler):
  """Return a run; the loss that its clients report is how many examples.

  What the one sends is NaN, its loss is not.
  """
  client, number = drawn[2]
  experiment = spoil_upload(make_experiment(**DROPPING), client, [number])
  update = experiment.stages[0].algorithm.local_update

  def local_update(down, state, data, rng):
    state, up, metrics = update(down, state, data, rng)
    return state, up, {**metrics, 'loss': data.count.astype(float)}

  experiment = with_algorithm(experiment, local_update=local_update)
  return record(experiment, tmp_path_factory.mktemp('dropout'), [2])


def test_what_is_sent_is_counted_and_who_is_left_out_is_named(
  run, drawn, capsys
):
  """Those that fail have downloaded, and upload nothing; after a kill, too."""
  train(run.experiment, run.folder / 'killed2', run.program)
  assert_same_run(run.folder / 'killed2', run.path)
  cohorts, stays, (client, number) = drawn
  sentence = (
    f'Round {number + 1}: excluded client {client}, where the loss, the state '
    'or the upload is NaN or infinite.'
  )
  assert sentence in capsys.readouterr().out.splitlines()
  count = np.asarray(run.experiment.train.count)
  lines = run_dir.load_metrics(run.path)  # of two rounds each
  for line, first in zip(lines, range(0, ROUNDS, 2), strict=True):
    part = slice(first, first + 2)
    starts, sent = stays[part], has_sent(drawn)[part]
    pairs = [[number + 1, client]] if first == 2 else None
    assert line['dropped'] == (~starts).sum()
    assert line['excluded'] == (starts & ~sent).sum()
    assert line.get('excluded_clients') == pairs
    assert line['bytes_up'] == sent.sum() * BODY
    assert line['bytes_down'] == starts.size * (BODY + 4)  # and the clock
    assert line['loss'] == pytest.approx(count[cohorts[part][sent]].mean())


def has_sent(drawn):
  cohorts, stays, (client, number) = drawn
  is_excluded = cohorts == client
  is_excluded[np.arange(ROUNDS) != number] = False
  return stays & ~is_excluded


# ---- runs that stop


@pytest.mark.parametrize('number', [0, 2])
def test_nan_stops_the_run_and_names_the_rounds(number, tmp_path):
  """Before the first checkpoint, or after one; again if run once more."""
  experiment = spoil_upload(make_experiment(**SMALL), DIVERGING, [number])
  program = Program(experiment)
  for _ in range(2):
    message = refused(train, experiment, tmp_path, program)
    assert f': round {number + 1}, in the state or the upload of' in message
    assert ' of client 3; seed 0' in message
    assert f'metrics up to round {number} are stored' in message
    assert not (tmp_path / run_dir.RESULT).exists()
    assert ('there is no checkpoint yet' in message) == (number == 0)
  if number:
    _, server = server_of(experiment, tmp_path)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))


@pytest.mark.parametrize(('steps', 'stops'), [(3, False), (0, True)])
def test_a_client_without_a_step_is_not_left(steps, stops):
  """Of two clients one diverges; the other may not have joined."""
  experiment = make_experiment(**SMALL, on_divergence='exclude')
  run = SimpleNamespace(path='run', last_checkpoint=lambda: None)
  training = SimpleNamespace(experiment=experiment, run=run, done=0)
  metrics = {
    FINITE: np.array([[True, False]]),
    SERVER_FINITE: np.array([True]),
    'num_steps': np.array([[steps, 3]]),
    'loss': np.array([[0, np.nan]]),
  }
  stage, cohorts = experiment.stages[0], np.array([[0, 4]])
  check = partial(check_finite, training, stage, 1, cohorts, metrics)
  if stops:
    assert 'in the loss of client 4' in refused(check)
  else:
    check()


# ---- the first bad step


@pytest.mark.long
def test_debugging_continues_a_run_and_names_the_step(tmp_path):
  """After the last good checkpoint, on the loop backend."""
  plain = make_experiment(**SMALL)
  update = plain.stages[-1].algorithm.local_update
  first = plain.train.index[DIVERGING, 0]

  def diverge(down, state, data, rng):
    """Train from a model that makes the loss NaN, in the third round."""
    diverges = (down.round == 2) & (data.index[0] == first)
    factor = jnp.where(diverges, jnp.nan, 1.0)
    params = jax.tree.map(lambda leaf: factor * leaf, down.params)
    return update(down._replace(params=params), state, data, rng)

  def make(**changes):
    experiment = make_experiment(**SMALL, **changes)
    return with_algorithm(experiment, local_update=diverge)

  message = refused(train, make(), tmp_path)
  assert 'round 3, in the loss of client 3;' in message
  message = refused(train, make(debug=True), tmp_path)
  assert message.startswith(
    "training: got 'NaN or infinity: client 3, round 3 of fedavg, step 1 of "
    "epoch 1, in its loss', expected finite numbers. Choices: "
  )


# ---- simulated time: a deadline, buffers

TIMED = HALF | {'log_every': 1, 'client_speeds': 'lognormal'}
RUNS = {
  # Clients remember what they have not sent.
  'partial': {'deadline': 4.0, 'late_clients': 'partial', 'dropout_rate': 0.3}
  | {'compression': 'topk', 'server_optimizer': 'yogi'},
  'buffers': {'buffer_size': 2, 'dropout_rate': 0.3},
}


@pytest.mark.parametrize('kind', RUNS)
def test_a_run_has_a_clock_and_continues_it(kind, tmp_path):
  experiment = make_experiment(**TIMED, **RUNS[kind])
  run = record(experiment, tmp_path, [2])
  train(experiment, tmp_path / 'killed2', run.program)
  assert_same_run(tmp_path / 'killed2', run.path)
  seconds = [line['sim_seconds'] for line in run_dir.load_metrics(run.path)]
  lasts = np.diff([0, *seconds])
  assert (lasts >= 0).all() and seconds[-1] > 0
  assert run.result['sim_seconds'] == seconds[-1]
  if 'deadline' in RUNS[kind]:
    assert lasts.max() <= RUNS[kind]['deadline']
    assert sum(line['dropped'] for line in run_dir.load_metrics(run.path))
