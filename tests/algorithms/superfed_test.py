"""SuPerFed: what its golden cases do not say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  COHORT,
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  make_data,
  make_task,
  play,
)

from fedjax_pfl.algorithms import superfed
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Batch
from fedjax_pfl.federated.rounds import begin, init_states

pytestmark = pytest.mark.usefixtures('quick_compiler')
TASK, DATA = make_task(), make_data()


def flat(tree):
  """Return {path: leaf} without holes."""
  names = trees.leaf_names(tree)
  return dict(zip(names, jax.tree.leaves(tree), strict=True))


FORMS = {
  'paper': {'mixing': 'layer', 'twice': 'kernels'},
  'first_code': {'mixing': 'model', 'twice': 'all'},
  'final_code': {'mixing': 'layer', 'twice': 'kernels'},
}


@pytest.mark.parametrize(
  'protocol',
  [
    pytest.param(form, marks=[pytest.mark.long] * (form != 'paper'))
    for form in FORMS
  ],
)
@pytest.mark.usefixtures('float64')
def test_gradients_by_hand(protocol):
  """Of both models, as the equations of the paper have them.

  d/dw = (1 - lambda) G + mu d_D + nu (2 s / ab v - 2 s^2 / a^2 b w)
  d/dv =      lambda  G          + nu (2 s / ab w - 2 s^2 / a b^2 v)
  """
  hp = superfed.HParams(mu=0.3, nu=0.7, protocol=protocol, **FORMS[protocol])
  anchor, federated, own = (TASK.init(KEY(seed)) for seed in range(3))
  twins = superfed.twin_mask(TASK, hp.twice)
  own = trees.select(own, twins)
  x = jax.random.uniform(KEY(3), (4, 2, 2, 1))
  batch = Batch(x, jnp.array([0, 1, 2, 0]), jnp.array([1.0, 1, 1, 0]))
  loss = superfed.mixed_objective(TASK, hp, anchor)
  grads, _ = jax.jit(jax.grad(loss, has_aux=True))(
    superfed.Client(own, federated), batch, KEY(4)
  )
  numbers = flat(superfed.lambda_numbers(twins, hp.mixing))
  drawn = superfed.draw_ratios(
    jax.random.fold_in(KEY(4), 1), 1 + max(numbers.values())
  )
  assert len(set(drawn.tolist())) == (2 if hp.mixing == 'layer' else 1)
  w, v, w_g = flat(federated), flat(own), flat(anchor)
  ratio = {name: drawn[numbers[name]] if name in v else 0 for name in w}
  mixed = {
    name: (1 - ratio[name]) * w[name] + ratio[name] * v.get(name, 0)
    for name in w
  }
  mixed = jax.tree.unflatten(jax.tree.structure(anchor), list(mixed.values()))
  slope = flat(jax.grad(TASK.loss)(mixed, batch, KEY(4)))
  offset = 1e-6 if protocol == 'final_code' else 0
  s = sum(jnp.sum(w[name] * v[name] + offset) for name in v)
  a, b = (sum(jnp.sum(u[name] ** 2) for name in v) for u in (w, v))
  want, want_own = {}, {}
  for name in w:
    away = w[name] - w_g[name]
    pull = away / jnp.linalg.norm(away)
    if protocol == 'paper':
      pull = 2 * away
    elif protocol == 'first_code':
      pull *= 1 - drawn[0]
    elif name not in v:
      pull = 0
    want[name] = (1 - ratio[name]) * slope[name] + hp.mu * pull
    if name in v:
      turn = v[name] / (a * b) - s * w[name] / (a**2 * b)
      want[name] += hp.nu * 2 * s * turn
      turn = w[name] / (a * b) - s * v[name] / (a * b**2)
      want_own[name] = ratio[name] * slope[name] + hp.nu * 2 * s * turn
  assert_close(flat(grads.federated), want)
  assert_close(flat(grads.local), want_own)


def test_local_models_do_not_change_during_federation():
  """And does not decay, either."""
  assert TRAIN.weight_decay > 0
  stages = build('superfed', pairing='stale')
  assert [stage.name for stage in stages] == ['federation', 'personalisation']
  _, before = begin(stages[0], DATA, KEY(1))
  _, after, _ = play(stages[:1], DATA, rounds=1)
  assert_same_bits(after.local, before.local)
  moved = (
    after.federated['head']['kernel'] != before.federated['head']['kernel']
  )
  trained = np.isin(np.arange(len(DATA.count)), COHORT) & (DATA.count > 0)
  assert (moved.any((1, 2)) == trained).all()


def test_every_step_of_every_client_draws_anew():
  """Local models of 1, a server of 0 and no learning: losses are lambdas."""
  train = TRAIN._replace(learning_rate=lambda clock: 0.0)
  task = TASK._replace(
    init=lambda key: jax.tree.map(jnp.zeros_like, TASK.init(key)),
    loss=lambda params, batch, key: params['body']['kernel'].mean(),
  )
  (stage,) = build('superfed', task, train=train, phase_start=0.0, nu=0.0)

  def init_client(server, data, rng):
    client = stage.algorithm.init_client(server, data, rng)
    return superfed.Client(jax.tree.map(jnp.ones_like, client.local))

  algorithm = stage.algorithm._replace(init_client=init_client)
  _, _, history = play([stage._replace(algorithm=algorithm)], DATA, rounds=2)
  drawn = np.concatenate([one['losses'].ravel() for one in history])
  drawn = drawn[drawn != 0]  # after a client's last step
  steps = sum(int(one['num_steps'].sum()) for one in history)
  assert len(drawn) == len(np.unique(drawn)) == steps > 20
  assert drawn.min() < 0.2 and drawn.max() > 0.8 and (drawn < 1).all()


def test_a_module_has_one_lambda():
  """Shift and scale of a normalisation alike; what exists once has none."""
  mask = {
    'bn1': {'bias': True, 'scale': True},
    'block': {
      'conv': {'kernel': True},
      'head': {'bias': False, 'kernel': True},
    },
  }
  assert superfed.lambda_numbers(mask, 'layer') == {
    'block': {'conv': {'kernel': 0}, 'head': {'bias': None, 'kernel': 1}},
    'bn1': {'bias': 2, 'scale': 2},
  }
  ones = superfed.lambda_numbers(mask, 'model')
  assert set(jax.tree.leaves(ones)) == {0}


@pytest.mark.parametrize(
  ('protocol', 'share', 'rounds'),
  [
    ('paper', 0.4, [('federation', 4), ('personalisation', 6)]),
    ('final_code', 0.4, [('federation', 4), ('personalisation', 6)]),
    ('first_code', 0.4, [('federation', 3), ('personalisation', 7)]),
    ('paper', 0.49, [('federation', 4), ('personalisation', 6)]),
    ('paper', 0, [('personalisation', 10)]),
    ('first_code', 0.1, [('personalisation', 10)]),
    ('paper', 1, [('federation', 10)]),
    ('first_code', 1.0, [('federation', 10)]),
  ],
)
def test_rounds_of_the_phases(protocol, share, rounds):
  train = TRAIN._replace(rounds=10)
  stages = build('superfed', train=train, protocol=protocol, phase_start=share)
  assert [(stage.name, stage.rounds) for stage in stages] == rounds


def states(**hp):
  stages = build('superfed', **hp)
  return stages[-1].algorithm, *init_states(stages[0].algorithm, DATA, KEY(1))


@pytest.mark.parametrize(
  ('form', 'numbers'),
  [
    ({}, 4 * 5 + 5 * 3),  # kernels
    ({'twice': 'all'}, 4 * 5 + 5 + 5 * 3 + 3),
    ({'pairing': 'stale'}, 4 * 5 + 5 * 3 + 43),  # and a whole model
  ],
)
def test_what_a_client_keeps_and_sends(form, numbers):
  algorithm, server, clients = states(**form)
  assert trees.num_bytes(clients) == 4 * numbers * len(DATA.count)
  client = trees.gather(clients, 0)
  down = jax.eval_shape(algorithm.download, server, client)
  _, up, _ = jax.eval_shape(
    algorithm.local_update, down, client, client_of(DATA, 0), KEY(0)
  )
  assert trees.num_bytes(up) == 4 * 43
  assert trees.num_bytes(down) == 4 * 43 + 4  # and the clock


@pytest.mark.parametrize('local_init', ['client', 'shared'])
def test_local_models_begin_apart_from_the_global_one(local_init):
  _, server, clients = states(local_init=local_init)
  kernels = clients.local['body']['kernel']
  assert not (kernels == server.params['body']['kernel']).any()
  assert (kernels[1:] == kernels[0]).all() == (local_init == 'shared')


@pytest.mark.parametrize('pairing', ['fresh', 'stale'])
def test_views_lie_between_the_models(pairing):
  algorithm, server, clients = states(grid=(0, 0.25, 1), pairing=pairing)
  server = server._replace(params=TASK.init(KEY(9)))  # after some rounds
  client = trees.gather(clients, 0)
  views = algorithm.personalize(server, client, client_of(DATA, 0), KEY(0))
  assert list(views) == ['initial', 'mix_0.0', 'mix_0.25', 'mix_1.0']
  start = client.federated if pairing == 'stale' else server.params
  assert_same_bits(views['initial'], server.params)
  assert_same_bits(views['mix_0.0'], start)
  assert_same_bits(trees.combine(client.local, start), views['mix_1.0'])
  middle = (
    0.75 * start['head']['kernel'] + 0.25 * client.local['head']['kernel']
  )
  assert_close(views['mix_0.25']['head']['kernel'], middle)
  assert_same_bits(views['mix_0.25']['head']['bias'], start['head']['bias'])
