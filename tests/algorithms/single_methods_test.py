"""What the golden cases of some methods do not say, method by method."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  BATCH,
  FINETUNE,
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

from fedjax_pfl.algorithms import apfl, fedlc, moon
from fedjax_pfl.client import global_model
from fedjax_pfl.core import trees
from fedjax_pfl.core.losses import sum_squares
from fedjax_pfl.core.types import Batch
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
HEAD = ['head/bias', 'head/kernel']


def begun(name, task=None, **hp):
  """Return the algorithm of the one stage, and its first server."""
  (stage,) = build(name, task, **hp)
  return stage.algorithm, stage.algorithm.init_server(KEY(0))


# ---- APFL --------------------------------------------------------------------

ADAPTATIONS = [
  ('simultaneous', 'every_step', 3),
  ('sequential', 'first_step', 1),
  ('sequential', 'every_step', 3),
  ('simultaneous', 'first_step', 1),
  ('simultaneous', 'never', 0),
  ('sequential', 'never', 0),
]


@pytest.mark.parametrize(
  ('order', 'adapt', 'moves'),
  [
    pytest.param(*case, marks=[pytest.mark.long] * (number > 1))
    for number, case in enumerate(ADAPTATIONS)
  ],
)
def test_steps_in_which_apfls_alpha_moves(order, adapt, moves):
  """Of the three batches of a client whose v is not w."""
  train = TRAIN._replace(epochs=1, batch_size=BATCH)
  hp = {'train': train, 'order': order, 'adapt': adapt, 'alpha': 0.25}
  algorithm, server = begun('apfl', **hp)
  client = apfl.Client(algorithm.init_server(KEY(1)).params, jnp.array(0.25))
  client, _, metrics = algorithm.local_update(
    server, client, client_of(DATA, 4), KEY(2)
  )
  alphas = np.append(metrics['alphas'], client.alpha)
  assert alphas[0] == 0.25
  assert ((alphas[1:] != alphas[:-1]) == (np.arange(3) < moves)).all()
  assert metrics['num_steps'] == 6 and metrics['losses'].shape == (3,)


def test_released_apfl_has_biases_of_kernels_once():
  """Those of BatchNorm exist twice, like its scales."""
  ones = jnp.ones(2)
  params = {
    'conv': {'kernel': ones, 'bias': ones},
    'norm': {'scale': ones, 'bias': ones},
  }
  task = make_task()._replace(
    init=lambda key: params, is_head=jax.tree.map(lambda leaf: False, params)
  )
  algorithm, server = begun('apfl', task, protocol='released')
  client = algorithm.init_client(server, DATA, KEY(0))
  names = trees.leaf_names(client.private)
  assert names == ['conv/kernel', 'norm/bias', 'norm/scale']
  assert client.alpha == 0.25


# ---- Ditto -------------------------------------------------------------------


def test_ditto_as_released_is_fedavg_without_its_pull(float64):
  """At the first rate, which never falls; also where an anchor is trained."""
  hp = {'lam': 0.0, 'protocol': 'released', 'anchor': 'local'}
  server, _, _ = play(build('ditto', **hp), DATA)
  first = TRAIN.learning_rate(0)
  train = TRAIN._replace(learning_rate=lambda clock: first)
  want, _, _ = play(build('fedavg', train=train), DATA)
  assert_close(server.params, want.params)


# ---- Centralised and local training: momentum that outlives a round ----------

QUIET, NINE = make_task(noise=0), make_data((9,))  # three batches, one of one
PLAIN = TRAIN._replace(
  epochs=2, learning_rate=optax.constant_schedule(0.05), shuffle=False
)


def two_rounds(name, **hp):
  stages = build(name, QUIET, train=PLAIN, **hp)
  start, _, _ = play(stages, NINE, rounds=0)
  server, clients, _ = play(stages, NINE, rounds=2, cohort=(0,))
  return start.params, server, clients


def one_fit(start, epochs):
  train, clock = PLAIN._replace(epochs=epochs), jnp.zeros((), int)
  return train.fit(QUIET, start, client_of(NINE, 0), KEY(0), clock)[0]


def test_rounds_of_one_client_are_one_fit(float64):
  """Of twice the epochs, unless momentum begins anew."""
  start, server, _ = two_rounds('centralized')
  assert_close(server.params, one_fit(start, 4))
  start, server, _ = two_rounds('centralized', keep_momentum=False)
  assert_close(server.params, one_fit(one_fit(start, 2), 2))
  assert server.opt_state == ()
  start, server, clients = two_rounds('local_only')
  assert_close(trees.gather(clients.params, 0), one_fit(start, 4))
  assert_same_bits(server.params, start)


def test_a_frozen_part_does_not_decay(float64):
  assert PLAIN.weight_decay > 0
  for part, frozen in (('body', 'head'), ('head', 'body')):
    start, server, _ = two_rounds('centralized', trainable=part)
    assert_same_bits(server.params[frozen], start[frozen])
    for name, leaf in start[part].items():
      assert np.abs(server.params[part][name] - leaf).max() > 1e-3


# ---- FedPer and FedRep -------------------------------------------------------


def test_a_client_of_fedper_keeps_its_head_and_nothing_else():
  _, clients, _ = play(build('fedper'), DATA, rounds=0)
  assert trees.leaf_names(clients) == HEAD
  _, clients, _ = play(build('fedper', protocol='released'), DATA, rounds=0)
  assert trees.num_bytes(clients) == 0


def test_fedrep_without_a_phase_of_the_head_is_fedbabu(float64):
  hp = {'body_epochs': TRAIN.epochs, 'momentum': TRAIN.momentum}
  want, _, _ = play(build('fedbabu'), DATA, rounds=3)
  got, clients, _ = play(build('fedrep', head_epochs=0, **hp), DATA, rounds=3)
  assert_close(got.params, want.params)
  assert trees.leaf_names(clients) == HEAD


def test_only_the_papers_fedrep_is_seen_at_each_number_of_epochs():
  assert FINETUNE.epochs == (1, 2)
  names = {}
  for protocol in ('paper', 'released'):
    ((stage, *states),) = stage_shapes(build('fedrep', protocol=protocol), DATA)
    names[protocol] = set(view_names(stage.algorithm, *states, DATA))
  assert names['paper'] == {'initial', 'finetuned_1', 'finetuned'}
  assert names['released'] == {'initial', 'finetuned'}


# ---- FedLC -------------------------------------------------------------------


def test_padding_of_a_class_that_fedlc_leaves_out_changes_nothing():
  task, counts = make_task(), jnp.array([3, 1, 0])
  labels, mask = jnp.array([0, 2]), jnp.array([1.0, 0.0])
  batch = Batch(jnp.ones((2, 2, 2, 1)), labels, mask)
  loss, grads = jax.jit(jax.value_and_grad(fedlc.objective(task, counts, 1.0)))(
    task.init(KEY(0)), batch, KEY(0)
  )
  for leaf in (loss, *jax.tree.leaves(grads)):
    assert jnp.isfinite(leaf).all()


# ---- FedProx -----------------------------------------------------------------


@pytest.mark.long
def test_fedprox_of_the_body_without_a_term_is_fedbabu(float64):
  want, _, _ = play(build('fedbabu'), DATA)
  got, _, _ = play(build('fedprox', mu=0.0, trainable='body'), DATA)
  assert_same_bits(got.params['head'], want.params['head'])
  assert_close(got.params['body'], want.params['body'])


def test_the_view_local_update_is_trained_with_the_term(float64):
  """FedProx's; fine-tuning, and FedAvg's by either name, are without one."""
  data, params = client_of(DATA, 4), make_task().init(KEY(7))

  def models(name, **hp):
    algorithm, server = begun(name, **hp)

    @jax.jit
    def two(server):
      views = algorithm.personalize(server, (), data, KEY(1))
      return views['finetuned'], views['local_update']

    return two(server._replace(params=params))

  free, same = models('fedavg')
  assert_same_bits(free, same)
  finetuned, updated = models('fedprox', mu=0.5, distance='norm')
  assert_close(finetuned, free)
  far, near = (sum_squares(model, params) for model in (free, updated))
  assert 0 < near < 0.9 * far


# ---- MOON --------------------------------------------------------------------


def test_moons_contrast_begins_with_the_second_round_of_a_client():
  """Whatever the round of the server is then."""
  algorithm, server = begun('moon')
  server, one = server._replace(round=jnp.asarray(1)), client_of(DATA, 0)
  client = algorithm.init_client(server, one, KEY(0))
  update = jax.jit(algorithm.local_update)
  client, _, first = update(server, client, one, KEY(1))
  _, _, second = update(server, client, one, KEY(2))
  assert (first['contrasts'] == 0).all()
  assert (second['contrasts'][: int(second['num_steps'])] > 0.1).all()


def test_gradient_of_moon_runs_through_one_forward_pass():
  """The other two add their own products, one each here, and no more.

  Even where somebody asks for the gradient of all three models.
  """
  task = make_task()
  params = jax.eval_shape(task.init, KEY(0))
  batch = Batch(jnp.zeros((4, 2, 2, 1)), jnp.zeros(4, int), jnp.ones(4))

  def contrasted(params, anchor, last):
    loss = moon.objective(task, anchor, moon.Client(last, True), 1.0, 0.5)
    return loss(params, batch, KEY(0))[0]

  def plain(params, anchor, last):
    return task.loss(params, batch, KEY(0))

  def products(loss):
    grad = jax.grad(loss, (0, 1, 2))
    text = str(jax.make_jaxpr(grad)(params, params, params))
    return text.count('dot_general')

  assert products(contrasted) == products(plain) + 2


def test_cosine_of_dead_features():
  """A ReLU would hide the NaN that a plain root has at 0; others would not."""
  zeros = jnp.zeros((1, 3))
  for other in (zeros, zeros + 1):
    value, grads = jax.value_and_grad(lambda u, v: moon.cosine(u, v)[0])(
      zeros, other
    )
    assert value == 0 and jnp.isfinite(grads).all()


# ---- pFedMe ------------------------------------------------------------------

STEADY = TRAIN._replace(learning_rate=optax.constant_schedule(0.125))


def test_pfedme_with_one_inner_step_and_lam_of_one_over_eta_is_fedavg():
  """Without momentum: that of `train` is not used."""
  plain = STEADY._replace(momentum=0.0)
  want, _, _ = play(build('fedavg', train=plain)[:1], DATA)
  hp = {'inner_steps': 1, 'inner_lr': 0.125, 'lam': 8.0}
  got, _, _ = play(build('pfedme', train=STEADY, **hp), DATA)
  assert_close(got.params, want.params)


def test_pfedmes_beta_is_the_share_of_the_mean():
  """From w = 1 to the mean of 2 and 6, half as far, and twice."""
  for beta, want in ((1.0, 4.0), (0.5, 2.5), (2.0, 7.0)):
    (stage,) = build('pfedme', train=STEADY, beta=beta)
    server = global_model.Server(jnp.array(0), jnp.ones(()))
    senders = all_send(jnp.arange(2), jnp.array([5, 5]), DATA)
    after = stage.algorithm.aggregate(server, jnp.array([2.0, 6.0]), senders)
    assert after.params == want


def test_a_client_that_never_trained_is_evaluated_by_the_global_model():
  """Client 4 trained, client 3 did not, client 2 has nothing to train on."""
  (stage,) = build('pfedme', train=STEADY)
  server, clients, _ = play((stage,), DATA, rounds=1, cohort=(2, 4))
  for i in (2, 3, 4):
    views = stage.algorithm.personalize(
      server, trees.gather(clients, i), client_of(DATA, i), KEY(0)
    )
    own, other = (
      views[name]['head']['bias'] for name in ('personal', 'initial')
    )
    assert (jnp.abs(own - other).max() > 1e-3) == (i == 4)


# ---- SCAFFOLD ----------------------------------------------------------------


def test_first_round_of_scaffold_is_fedavgs():
  want, _, _ = play(build('fedavg'), DATA, rounds=1)
  got, variates, _ = play(build('scaffold'), DATA, rounds=1)
  assert_close(got.params, want.params)
  assert got.num_clients == len(DATA.count)
  # From the second round on all clients are corrected, also those that had
  # no part in the first: c is not zero, as the sum of the c_i is not.
  assert_close(got.total, jax.tree.map(lambda rows: rows.sum(0), variates))
  assert all(jnp.abs(leaf).max() > 0.01 for leaf in jax.tree.leaves(got.total))


def test_a_client_without_examples_has_no_variate():
  """Its T_i is 0; c, of which its variate would be less, is not."""
  _, variates, _ = play(build('scaffold'), DATA, rounds=2)
  for leaf in jax.tree.leaves(trees.gather(variates, 2)):
    assert (leaf == 0).all()


def test_scaffold_sends_two_models_each_way():
  algorithm, server = begun('scaffold')
  client = algorithm.init_client(server, DATA, KEY(0))
  down = algorithm.download(server, client)
  _, up, _ = jax.eval_shape(
    algorithm.local_update, down, client, client_of(DATA, 0), KEY(0)
  )
  size = trees.num_bytes(server.params)
  assert trees.num_bytes(up) == 2 * size
  assert trees.num_bytes(down) == 2 * size + down.round.dtype.itemsize
