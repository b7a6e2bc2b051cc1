"""Attackers and robust rules around methods: rounds by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  BATCH,
  COHORT,
  COUNTS,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  every_method,
  long,
  make_data,
  make_task,
  play,
  refused,
)
from on_the_host import play_both
from small_runs import make_experiment, make_settings

from fedjax_pfl.around import bad_pfl
from fedjax_pfl.around.aggregation import Aggregation, left_out
from fedjax_pfl.around.attacks import Attack, opened, poisoned
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.around.fair import Fair, weights_of
from fedjax_pfl.around.robust import Known, robust_mean
from fedjax_pfl.around.server_optimiser import ServerOptimiser
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import HAS_SENT
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Batch
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.results.runs.run import read
from fedjax_pfl.results.tables.result_table import table
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
DATA = make_data()
UNIFORM = TRAIN._replace(aggregation='uniform')
IDS = np.array(COHORT)
THERE = np.array(COUNTS)[IDS] > 0
BAD = (4, 0)


def made(rule='uniform', attack='none', ids=BAD, name='fedavg', **how):
  """Return the stages of a method with attackers and a rule."""
  more = {own: how.pop(own) for own in [*how] if own in Around._fields}
  if not isinstance(attack, Attack):
    attack = Attack(attack, attacker_ids=ids if attack != 'none' else ())
  own = Aggregation(rule, attack=attack, num_clients=len(COUNTS), **how)
  stages = build(name, train=UNIFORM)
  return around(stages, Around(aggregation=own, **more))


@functools.cache
def changes(**how):
  """Return the model before, and what each of the cohort changes [C, ...]."""
  stages = build('fedavg', make_task(**how), train=UNIFORM)
  alone = [play(stages, DATA, 1, (own,))[0].params for own in COHORT]
  before = stages[0].algorithm.init_server(jax.random.split(KEY(1))[0]).params
  rows = trees.stack(alone)
  return before, jax.tree.map(lambda row, w: row - w, rows, before)


def model_of(stages, data=DATA, rounds=1, **options):
  return play(stages, data, rounds, **options)[0].params


def plus(before, change):
  return jax.tree.map(jnp.add, before, change)


@pytest.mark.parametrize(
  'rule', ['median', long('krum'), long('centred_clipping')]
)
def test_a_rule_is_that_of_the_changes_of_those_with_examples(rule):
  before, rows = changes()
  known = Known(None, jnp.asarray(THERE), 2, IDS == 0)
  want, _ = robust_mean(rule, rows, known, ('mixing',), KEY(0))
  how = {'bears': 0.4, 'before': ('mixing',)}
  assert_close(model_of(made(rule, **how)), plus(before, want))
  options = {'backend': 'loop'} if rule == 'krum' else {'clients_per_chunk': 2}
  assert_close(model_of(made(rule, **how), **options), plus(before, want))
  moved = made(rule, **how, server_optimiser=ServerOptimiser('sgd', 0.5, 0.0))
  half = jax.tree.map(lambda leaf: leaf / 2, want)
  assert_close(model_of(moved), plus(before, half))


def test_a_lie_is_in_the_mean_of_a_server_that_believes_all():
  before, rows = changes()
  honest = [2 * (own == 1) + 4 * (own == 5) for own in COHORT]
  is_honest = np.array(honest) > 0
  mean = jax.tree.map(lambda leaf: leaf[is_honest].mean(0), rows)
  apart = jax.tree.map(lambda leaf: leaf[is_honest].std(0, ddof=1), rows)
  lies = {
    'sign_flip': jax.tree.map(jnp.negative, mean),
    'ipm': jax.tree.map(lambda leaf: -2 * leaf, mean),
    'alie': jax.tree.map(lambda m, s: m + 1.5 * s, mean, apart),
    'mimic': jax.tree.map(lambda leaf: leaf[COHORT.index(1)], rows),
  }
  for name, lie in lies.items():
    # Two honest clients with examples, and two attackers.
    want = jax.tree.map(lambda m, own: (m + own) / 2, mean, lie)
    assert_close(model_of(made(attack=name)), plus(before, want))
  assert not trees.all_finite(model_of(made(attack='infinite')))
  flipped = model_of(made(attack='sign_flip', ids=(2, 3)))  # nobody of them
  assert_close(flipped, model_of(build('fedavg', train=UNIFORM)))
  noisy = model_of(made(attack='gaussian'))
  assert not np.allclose(noisy['body']['bias'], before['body']['bias'], 1e-2)


def test_what_is_no_number_is_left_out_of_every_rule(attack='absent'):
  none = play(made('krum', attack, bears=0.2), DATA, 1)[0].lies
  assert none.sent.tolist() == [1, 1, 0, 0, 1, 1, 0]
  for rule in ('median', 'geometric_median', 'monna', 'caf'):
    server = play(made(rule, attack, bears=0.2), DATA, 2)[0]
    assert trees.all_finite(server.params), rule
    assert server.lies.left_out[jnp.array(BAD)].tolist() == [2, 2], rule
    assert left_out(server)['left_out/recall'] == 1


@pytest.mark.parametrize(
  'compression', [{}, {'compression': Compression('topk')}]
)
def test_a_rule_of_one_client_is_the_method_itself(compression):
  """With what a compressed change has become, and its memory."""
  plain = around(build('fedper', train=UNIFORM), Around(**compression))
  ruled = made('median', name='fedper', **compression)
  want, got = (play(stages, DATA, 2, (4,)) for stages in (plain, ruled))
  assert_close(got[0].params, want[0].params)
  assert_close(got[1], want[1])


def test_the_best_strength_is_no_worse_than_the_usual_one():
  before, rows = changes()
  is_honest = np.isin(IDS, (1, 5))
  honest = jax.tree.map(lambda leaf: leaf[is_honest].mean(0), rows)

  def damage(attack):
    model = model_of(made('geometric_median', attack, bears=0.4))
    apart = jax.tree.map(lambda a, b, c: a - b - c, model, before, honest)
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(apart))

  assert damage('best_alie') > damage('alie') > 0


def test_who_fails_has_sent_nothing_and_nobody_moves_nothing():
  before, rows = changes()
  stages = made('median', failures=Failures(0.5))
  server, _, (metrics,) = play(stages, DATA, 1)
  sent = np.asarray(metrics[HAS_SENT])
  assert sent.any() and not sent.all()
  known = Known(None, jnp.asarray(THERE & sent), 0, IDS == 0)
  want, _ = robust_mean('median', rows, known, (), KEY(0))
  assert_close(server.params, plus(before, want))
  server, _, _ = play(made('median', failures=Failures(0.999)), DATA, 1)
  assert_same_bits(server.params, before)
  assert server.round == 1 and not server.lies.sent.any()


def test_attackers_are_drawn_by_the_seed_alike_for_all_methods():
  def drawn(seed, name='fedavg', rule='median'):
    own = Attack('sign_flip', 0.4)
    how = Aggregation(rule, attack=own, num_clients=7)
    stages = around(build(name), Around(aggregation=how))
    begun = stages[0].algorithm.init_server(KEY(seed))
    return np.flatnonzero(begun.lies.is_bad).tolist()

  assert len(drawn(0)) == 3 and drawn(0) == drawn(0, 'ditto')
  seeds = [drawn(seed) for seed in range(20)]
  assert len({*map(tuple, seeds)}) > 5 and any(0 in own for own in seeds)
  assert not any(0 in drawn(seed, rule='monna') for seed in range(20))


def test_rows_on_the_host_are_rounds_as_well():
  assert_close(*play_both(made('trimmed_mean', 'label_flip', bears=0.25)))


# ---- fair objectives


@pytest.mark.parametrize('rule', ['qffl', 'afl', 'term', 'fedmgda'])
def test_a_fair_rule_weighs_changes_by_the_losses_before_them(rule):
  """Of a network whose losses do not depend on batches."""
  how = {'noise': 0, 'normalised': False}
  task = make_task(**how)
  fair = Fair(rule, 0.1, 0.2, task, BATCH, len(COUNTS))
  parts = Around(fair=fair, failures=Failures(0.7))
  stages = around(build('fedavg', task, train=UNIFORM), parts)
  server, _, (metrics,) = play(stages, DATA, 1)
  before, rows = changes(**how)
  losses = [loss_of(task, before, client) for client in COHORT]
  there = jnp.asarray(THERE & metrics[HAS_SENT])
  assert 1 < there.sum() < THERE.sum()
  known = Known(trees.products(rows), there, 0, there)
  scale = weights_of(
    fair, known, jnp.array(losses), jnp.full(len(COHORT), 1 / 7)
  )
  assert (scale > 0).tolist() == there.tolist()
  assert_close(server.params, plus(before, trees.weighted_sum(rows, scale)))
  if rule == 'afl':
    moved = np.full(7, 1 / 7)
    moved[IDS[there]] += 0.1 * np.array(losses)[there]
    shift = (moved.sum() - 1) / 7  # all stay above 0
    np.testing.assert_allclose(server.fair, moved - shift, atol=1e-9)


def loss_of(task, params, client):
  if not COUNTS[client]:
    return 0.0
  rows = DATA.index[client, : COUNTS[client]]
  x = task.normalise(DATA.x[rows], None)
  return task.loss(params, Batch(x, DATA.y[rows], jnp.ones(len(x))), KEY(0))


# ---- data


def test_attackers_learn_from_flipped_labels():
  attack = Attack('label_flip', attacker_ids=BAD, num_classes=3)
  is_bad = jnp.isin(jnp.arange(7), jnp.array(BAD))
  found = poisoned(DATA, is_bad, attack)
  rows = np.concatenate([DATA.index[own, : COUNTS[own]] for own in BAD])
  want = np.array(DATA.y)
  want[rows] = 2 - want[rows]
  assert_same_bits((found.x, found.y), (DATA.x, jnp.asarray(want)))
  (stage,) = made(attack='label_flip')
  server = stage.algorithm.init_server(KEY(0))
  plain = build('fedavg')[0].prepare_data(server, DATA)
  assert (np.asarray(stage.prepare_data(server, DATA).y) != plain.y).any()


@pytest.mark.parametrize('name', ['backdoor', 'distributed_backdoor'])
def test_a_backdoor_is_in_a_share_of_the_examples_of_attackers(name):
  data = make_data((6, 3, 4), shape=(4, 4, 2), classes=3)
  how = Attack(name, attacker_ids=(0, 2), target=2, num_classes=3)
  found = poisoned(data, jnp.array([True, False, True]), how)
  x, y = np.array(data.x), np.array(data.y)
  for number, (own, many) in enumerate(((0, 3), (2, 2)), 1):
    rows = np.asarray(data.index)[own, :many]
    columns = [0, 1] if name == 'backdoor' else [number % 2]
    x[np.ix_(rows, [0, 1], columns)] = 255
    y[rows] = 2
  assert_same_bits((found.x, found.y), (jnp.asarray(x), jnp.asarray(y)))
  tests = opened(data, how)
  assert (tests.x[:, :2, :2] == 255).all() and (tests.y == 2).all()
  assert_same_bits(tests.x[:, 2:], np.asarray(data.x)[:, 2:])
  for own in range(3):
    rows = np.asarray(data.index)[own, : data.count[own]]
    others = [row for row in rows if data.y[row] != 2]
    assert tests.index[own, : tests.count[own]].tolist() == others


def test_bad_pfl_has_a_trigger_for_each_image():
  task = make_task(noise=0)
  (stage,) = made('uniform', bad_pfl_of(task, BAD))
  server = stage.algorithm.init_server(KEY(0))
  found = stage.prepare_data(server, DATA)
  rows = [DATA.index[own, : -(-COUNTS[own] // 2)] for own in BAD]
  is_hit = np.isin(np.arange(len(DATA.y)), np.concatenate(rows))
  moved = np.abs(np.array(found.x, int) - DATA.x).max((1, 2, 3))
  assert (moved[is_hit] > 0).any() and not moved[~is_hit].any()
  assert moved.max() <= 8
  assert_same_bits(found.y, jnp.where(is_hit, 0, jnp.asarray(DATA.y)))
  # What they learn is the start of a backdoor: a step of g is towards class 0.
  method, x, y = stage.algorithm, jnp.asarray(DATA.x), jnp.asarray(DATA.y)
  attack = bad_pfl_of(task, BAD)
  made_of = bad_pfl.trigger(method, server, DATA, np.array(BAD), attack)

  def share(x):
    x, model = task.normalise(x, None), method.global_model(server)
    return jax.nn.softmax(method.predict(model, x, jnp.ones(len(x))))[
      :, 0
    ].mean()

  assert share(made_of(x, y)) > share(x)


def bad_pfl_of(task, ids):
  return Attack('bad_pfl', attacker_ids=ids, task=task, num_classes=3)


# ---- methods


@every_method(short=9)
def test_a_method_averages_or_is_refused(name):
  """In a sentence, as its rounds are traced."""
  fair = Around(fair=Fair('term', 1.0, 0.2, make_task(), BATCH, len(COUNTS)))

  def trace(stages_of):
    for stage, *states in stage_shapes(stages_of(), DATA):
      data = jax.eval_shape(stage.prepare_data, states[0], DATA)
      round_fn = make_round(stage.algorithm, clients_per_chunk=1, mesh=None)
      jax.eval_shape(round_fn, *states, jnp.arange(4), data, KEY(0))

  for stages_of in (
    lambda: made('median', name=name),
    lambda: made('uniform', 'alie', (0,), name),
    lambda: made('uniform', 'label_flip', (0,), name),
    lambda: made('uniform', bad_pfl_of(make_task(), (0,)), name=name),
    lambda: around(build(name), fair),
  ):
    try:
      trace(stages_of)
    except BadInput:
      assert 'with this method: its ' in refused(trace, stages_of)
      assert name not in ('fedavg', 'fedbabu', 'ditto', 'fedprox')


# ---- your own, and a whole run

OWN = """
import jax, jax.numpy as jnp

def swap(changes, is_bad, rng):
  return jax.tree.map(lambda leaf: -leaf, changes)

def middle(changes, there, liars):
  return jax.tree.map(lambda leaf: jnp.median(leaf, 0), changes)

def wrong(changes, there):
  return changes
"""


def test_an_attack_and_a_rule_of_your_own(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'own.py').write_text(OWN)
  names = {'attack': 'own.py:swap', 'aggregation': 'own.py:middle'}
  loaded = load_code(names)
  before, rows = changes()
  is_bad = np.isin(IDS, BAD)
  rows = jax.tree.map(
    lambda x: jnp.where(is_bad[:, *[None] * (x.ndim - 1)], -x, x), rows
  )
  want = jax.tree.map(lambda leaf: jnp.median(leaf, 0), rows)
  found = model_of(made(loaded['aggregation'], loaded['attack']))
  assert_close(found, plus(before, want))
  config = make_settings(**load_code({'aggregation': 'own.py:wrong'}))
  message = refused(build_experiment, config)
  assert 'TypeError: wrong() takes 2 positional arguments but 3' in message
  assert 'Likely cause: its arguments are others' in message


def test_a_run_tells_of_honest_clients_and_of_whom_it_left_out(tmp_path):
  experiment = make_experiment(
    attack='backdoor',
    attackers=0.3,
    attack_target=1,
    aggregation='multi_krum',
    client_fraction=1.0,
    rounds=2,
  )
  result = train(experiment, str(tmp_path))
  lies, clients = result['lies'], run_dir.load_clients(tmp_path)
  assert len(lies['attackers']) == 3
  honest = np.setdiff1d(np.arange(10), lies['attackers'])
  assert np.flatnonzero(clients.attackers).tolist() == lies['attackers']
  last, run = run_dir.load_metrics(tmp_path)[-1], read(tmp_path)
  assert 'initial/accuracy' in last
  for view, scores in clients.scores.items():
    accuracy = 100 * scores.correct[honest] / scores.count[honest]
    found, success = result['views'][view], scores.own['backdoor']
    assert np.isclose(found['mean'], accuracy.mean())
    assert found['lowest_client'] == accuracy.min()
    assert found['num_clients'] == 7 and found['num_left_out'] == 3
    assert last.get(f'{view}/accuracy', found['mean']) == found['mean']
    assert np.isclose(found['backdoor'], np.nanmean(success[honest]))
    # Shares of the tests of other classes than the target.
    hits = success * (scores.count - clients.test_classes[:, 1]) / 100
    np.testing.assert_allclose(hits, np.rint(hits), atol=1e-4)
    # What reads the run counts none of the attackers either.
    assert np.isnan(run.accuracy(view)[lies['attackers']]).all()
    assert run.summary(view)['lowest_client'] == accuracy.min()
  # Of 10 clients 7 are in the mean: 3 are left out in each round.
  assert last['left_out/share'] == lies['left_out']['left_out/share'] == 0.3
  assert last['left_out/precision'] == last['left_out/recall']
  lies['clean'] = result['views']
  lines = table([result]).splitlines()
  (head,) = [one for one in lines if 'honest clients' in one]
  assert head.split()[-2:] == ['clean', 'attacked']
  for begin in (
    'FedBABU, backdoor: initial ',
    'FedBABU, clients left out by the server: share 0.30, precision',
  ):
    assert any(one.startswith(begin) for one in lines), begin
