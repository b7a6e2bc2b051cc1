"""Running statistics in the rounds of every method."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  ALGORITHMS,
  KEY,
  TRAIN,
  assert_close,
  build,
  client_of,
  every_method,
  make_data,
  play,
  refused,
  round_of,
)
from norm_task import norm_task
from small_runs import make_settings

from fedjax_pfl.algorithms import load
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.federated.communication import messages
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.settings import parse_config

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
SHAPE, COUNTS, COHORT = (4, 4, 1), (7, 9, 5, 8), (0, 1, 2)
STILL = TRAIN._replace(learning_rate=lambda clock: 1e-9 + 0 * clock)
# Rounds of other steps; clients with statistics, or several models, or none.
OTHERS = 'fedamp', 'fedas', 'fedbn', 'fedconcat', 'feddbe', 'fedfomo', 'fednova'
OTHERS += 'fedpac', 'fedproto', 'fedrep', 'ifca', 'local_only', 'partial'
OTHERS += 'per_fedavg', 'pfedme'
OTHERS += 'fedtgp', 'fedgh', 'fd', 'fedkd', 'pfedgraph', 'cfl', 'pfedhn'
DATA = make_data(COUNTS, shape=SHAPE, classes=2)


@functools.cache
def task():
  return norm_task()


def averages(params):
  return norm_stats.found_in(params, norm_stats.names_of(task().is_head))


@functools.cache
def still(name):
  """Return the server's statistics after rounds that change nothing else."""
  hp = {'optimizer': 'sgd', 'learning_rate': 1.0} if name == 'fedopt' else {}
  stage = build(name, task(), train=STILL, **hp)[0]
  return averages(play([stage], DATA, cohort=COHORT)[0])


@every_method(0, [name for name in ALGORITHMS if name not in OTHERS])
def test_the_terms_of_a_method_do_not_move_them(name):
  """Where weights stand still, they are those of FedAvg's rounds."""
  got, want = still(name), still('fedavg')
  for leaf, other in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(leaf, other, rtol=1e-5)


@every_method(3)
def test_with_running_local_no_statistics_are_uploaded(name):
  kinds = getattr(load(name), 'NORM_STATISTICS', norm_stats.NORM_STATISTICS)
  if 'running_local' not in kinds:
    config = make_settings(algorithm=name, norm_statistics='running_local')
    message = refused(parse_config, config)
    assert 'norm_statistics' in message and name in message
    return
  stages = around(build(name, task()), Around(keeps_statistics=task()))
  for stage, server, clients in stage_shapes(stages, DATA):
    sent = messages(stage, server, clients, DATA)
    assert not norm_stats.names_of((sent.up, sent.down))
    after = jax.eval_shape(
      stage.algorithm.local_update,
      *(sent.down, sent.state, client_of(DATA, 0), KEY(0)),
    )
    assert jax.tree.structure(after[0]) == jax.tree.structure(sent.state)
    rows = jax.eval_shape(stage.prepare_data, server, DATA)
    args = server, clients, jnp.array(COHORT), rows, KEY(0)
    jax.eval_shape(round_of(stage), *args)


def test_they_are_neither_pulled_nor_mixed():
  """By Ditto, whose pull may be clipped, nor by the weights of FedALA."""
  tx = load('ditto').pull({'w': 0.0, norm_stats.VAR: 0.0}, 0.5)
  ones, twos = (dict.fromkeys(('w', norm_stats.VAR), n) for n in (1.0, 2.0))
  assert tx.update(ones, tx.init(twos), twos)[0] == ones | {'w': 2.0}
  (stage,) = build('fedala', task(), part='full')
  for _, _, clients in stage_shapes((stage,), DATA):
    assert not norm_stats.names_of(clients.mixture)


def test_clients_that_keep_them_are_tested_by_their_own():
  stages = around(build('fedavg', task()), Around(keeps_statistics=task()))
  server, clients, _ = play(stages, DATA, cohort=COHORT)
  kept = clients.statistics['bn/running_var']
  assert (kept[3] == 1).all()  # was in no cohort
  assert len(np.unique(np.round(kept[:, 0], 9))) == 4
  assert_close(averages(server), averages(task().init(KEY(0))))
  plain, _, _ = play(build('fedavg', task()), DATA, cohort=COHORT)
  without = [norm_stats.learned(one.params) for one in (server, plain)]
  assert_close(*without)  # training normalises by the batch

  @jax.jit
  def shown(client, data):
    views = stages[0].algorithm.personalize(server, client, data, KEY(5))
    return [averages(views[name]) for name in ('initial', 'finetuned')]

  for i, own in enumerate(kept):
    first, tuned = shown(trees.gather(clients, i), client_of(DATA, i))
    np.testing.assert_array_equal(first['bn/running_var'], own)
    assert (tuned['bn/running_var'] != own).all()
