"""What the golden cases of some methods do not say, method by method."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  assert_same_bits,
  build,
  client_of,
  long,
  make_data,
  make_task,
  play,
  round_of,
)
from norm_task import norm_task

from fedjax_pfl.algorithms import (
  cfl,
  fedamp,
  fedas,
  fedfomo,
  fedlc,
  fednova,
  fedpac,
)
from fedjax_pfl.client import own_examples
from fedjax_pfl.core import trees
from fedjax_pfl.core.losses import sum_squares
from fedjax_pfl.core.types import Batch
from fedjax_pfl.evaluation.new_clients import first_state
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()


def begun(name, task=None, **hp):
  """Return the algorithm of the one stage, and its first server."""
  (stage,) = build(name, task, **hp)
  return stage.algorithm, stage.algorithm.init_server(KEY(0))


def test_a_client_without_examples_is_in_no_mixture_of_fedamp():
  models = {'w': jnp.arange(4.0)[:, None]}
  senders = all_send(jnp.arange(4), jnp.array([5, 0, 2, 3]), DATA)
  x = fedamp.similarities(models, senders, 0.1, 1.0)
  assert x[0, 1] == 0 and x[0, 2] > 0 and x[1, 1] < 1
  assert_close(x.sum(1), jnp.ones(4))


# ---- Centralised and local training: momentum that outlives a round ----------

QUIET, NINE = make_task(noise=0), make_data((9,))  # three batches, one of one
PLAIN = TRAIN._replace(
  epochs=2, learning_rate=optax.constant_schedule(0.05), shuffle=False
)


def two_rounds(name):
  stages = build(name, QUIET, train=PLAIN)
  start, _, _ = play(stages, NINE, rounds=0)
  server, clients, _ = play(stages, NINE, rounds=2, cohort=(0,))
  return start.params, server, clients


@jax.jit
def one_fit(start):
  train, clock = PLAIN._replace(epochs=4), jnp.zeros((), int)
  return train.fit(QUIET, start, client_of(NINE, 0), KEY(0), clock)[0]


def test_rounds_of_one_client_are_one_fit(float64):
  """Of twice the epochs."""
  start, server, _ = two_rounds('centralized')
  assert_close(server.params, one_fit(start))
  start, server, clients = two_rounds('local_only')
  assert_close(trees.gather(clients.params, 0), one_fit(start))
  assert_same_bits(server.params, start)


def test_adam_of_several_clients_knows_its_step():
  """The count is a whole number, of which there is no weighted mean."""
  train = TRAIN._replace(optimizer='adam', epochs=1)
  cohort = 0, 4  # two and three batches a round
  server, *_ = play(build('centralized', train=train), DATA, cohort=cohort)
  counts = [
    leaf
    for leaf in jax.tree.leaves(server.opt_state)
    if jnp.issubdtype(leaf.dtype, jnp.integer)
  ]
  steps = -(-DATA.count[jnp.array(cohort)] // TRAIN.batch_size)
  assert counts and {*map(int, counts)} == {2 * int(steps.max())}


# ---- IFCA, FedNova, Ditto ----------------------------------------------------


def test_batches_of_a_choice_are_of_random_order_and_count_by_size(float64):
  """In the stored order, which may be sorted, BatchNorm sees one class."""
  task, data = make_task(noise=0), client_of(make_data((9,)), 0)
  params = task.init(KEY(0))
  models = jax.tree.map(lambda leaf: leaf[None], params)
  order = own_examples.shuffled(data, jax.random.fold_in(KEY(1), 2)).index
  total = 0
  for rows in jnp.split(order[:9], (4, 8)):
    x = task.normalise(data.x[rows], KEY(1))
    batch = Batch(x, data.y[rows], jnp.ones(len(rows)))
    total += len(rows) * task.loss(params, batch, KEY(1))
  got = own_examples.mean_losses(task, models, data, KEY(1), 4)
  assert_close(got[0], total / 9)


def test_the_norm_of_steps_of_fednova():
  """beta = 1/2: 1 + 3/2 + 7/4, and none of no step."""
  norms = fednova.norm_of_steps(jnp.array([0, 1, 3]), 0.5)
  assert norms.tolist() == [0.0, 1.0, 4.25]


def test_the_fits_of_ditto_draw_for_themselves():
  """The batches of v are not those of w: else, without a pull, v = w."""
  hp = {'lam': 0.0, 'personal_momentum': TRAIN.momentum}
  algorithm, server = begun('ditto', **hp)
  own, up, _ = jax.jit(algorithm.local_update)(
    server, server.params, client_of(DATA, 4), KEY(0)
  )
  assert jnp.abs(own['head']['kernel'] - up['head']['kernel']).max() > 1e-3


def test_a_client_of_fd_knows_what_others_sent_before_it_was_alone():
  (stage,), data = build('fd'), DATA._replace(y=jnp.zeros_like(DATA.y))
  server, clients, _ = play((stage,), data, rounds=1, cohort=(0, 4))
  of_other = clients.sent.outputs[4, 0]
  for _ in range(2):
    server, clients, _ = round_of(stage)(
      server, clients, jnp.array([0]), data, KEY(3)
    )
    assert_close(clients.targets[0, 0], of_other)


def test_the_decay_of_gpfl_is_not_clipped():
  """Three steps of almost no gradient, with eta mu = 0.05 * 0.1."""
  train = PLAIN._replace(
    epochs=1, momentum=0.0, weight_decay=0.0, clip_norm=1e-6
  )
  algorithm, server = begun('gpfl', QUIET, train=train)
  client = algorithm.init_client(server, None, None)
  _, up, _ = jax.jit(algorithm.local_update)(
    server, client, client_of(NINE, 0), KEY(0)
  )
  assert_close(up.embeddings, 0.995**3 * server.embeddings)


@pytest.mark.parametrize(
  'name', ['fedcp', *map(long, ('fedconcat', 'fedpac', 'gpfl'))]
)
def test_products_beside_the_model_are_float32_on_every_device(name):
  shape, classes = (4, 4, 1), 2
  data, key = make_data(shape=shape, classes=classes), KEY(0)
  for stage, *states in stage_shapes(build(name, norm_task(shape)), data):
    rows = jax.eval_shape(stage.prepare_data, states[0], data)
    program = str(
      jax.make_jaxpr(round_of(stage))(*states, jnp.arange(2), rows, key)
    )
    # Of each product both operands.
    assert program.count('HIGHEST') == 2 * program.count('dot_general[') > 0


# ---- Examples that a partition has sorted by class ---------------------------


def in_order(labels):
  """Return a client with these labels, whose images tell them apart."""
  data = client_of(make_data((len(labels),)), 0)
  y = data.y.at[data.index].set(jnp.array(labels))
  return data._replace(x=data.x // 4 + 60 * y[:, None, None, None], y=y)


def test_the_validation_part_of_fedfomo_has_all_classes():
  data = in_order([0] * 6 + [1] * 4)._replace(count=jnp.array(9))
  divided = jax.jit(fedfomo.divided, static_argnums=1)
  held, rest = divided(data, 0.3)
  assert (held.count, rest.count) == (3, 6)
  rows = np.concatenate([held.index[:3], rest.index[:6]])
  assert {*rows.tolist()} == {*data.index[:9].tolist()}
  assert data.y[held.index[:3]].tolist() == [0, 0, 1]
  many = jnp.arange(400_000)
  data = data._replace(index=many, count=jnp.array(len(many)))
  held, _ = divided(data, 0.2)
  assert held.index[: held.count].tolist() == [*range(4, len(many), 5)]
  held, _ = divided(data._replace(count=jnp.array(100)), 0.3)
  assert held.count == 30


def test_running_statistics_are_no_part_of_the_distance_of_fedfomo():
  task = QUIET._replace(
    logits=lambda model, x, mask: mask[:, None] * model['w']
  )

  @jax.jit
  def gain(variance):
    own = {'w': jnp.zeros(3), 'running_var': jnp.ones(1)}
    received = {'w': jnp.eye(3)[:1], 'running_var': jnp.full((1, 1), variance)}
    client = fedfomo.Client(own, received, jnp.array([1]), jnp.zeros(2))
    data = client_of(DATA, 0)
    return fedfomo.mixture(task, fedfomo.HParams(), client, data, KEY(0))[1]

  assert gain(1.0)[0] != 0 and gain(9.0) == gain(1.0)


def test_a_late_client_of_released_gpfl_trains_with_its_condition():
  """By the embeddings of the round before, which the first round has not."""
  (stage,) = build('gpfl', protocol='released')
  server = stage.algorithm.init_server(KEY(0))

  @jax.jit
  def head(previous):
    after = server._replace(previous=previous)
    return first_state(stage, after, client_of(DATA, 0), KEY(0)).head

  both = server.embeddings, jnp.zeros_like(server.embeddings)
  own, other = (head(previous)['head']['kernel'] for previous in both)
  assert (own != other).any()


def test_a_cohort_of_one_has_the_weight_1_in_fedpac_without_optimisation():
  one = jnp.eye(1), jnp.array([True])
  lowered = jax.jit(fedpac.simplex_minimum).lower(*one)
  plain = lowered.compile({'xla_backend_optimization_level': 0})
  assert plain(*one) == 1


@pytest.mark.parametrize('name', ['fedproto', 'fedpac', 'fedas'])
def test_class_means_are_not_those_of_batches_of_one_class(name):
  """In which a normalisation takes away what tells the classes apart."""
  still = TRAIN._replace(learning_rate=optax.constant_schedule(0.0))
  algorithm, server = begun(name, QUIET, train=still)
  data = in_order([0] * 4 + [1] * 4)
  if name == 'fedas':  # which does not upload them
    hp = fedas.HParams(align_batch_size=4)
    means_of = jax.jit(partial(fedas.class_means, QUIET, hp))
    found = [means_of(server.params, data, KEY(0))]
  else:
    client = algorithm.init_client(server, data, KEY(0))
    down = algorithm.download(server, client)
    _, up, _ = jax.jit(algorithm.local_update)(down, client, data, KEY(0))
    found = [up.sums] if name == 'fedproto' else [up.sums, up.shares]
  for means in found:
    first, second = means[:2] / jnp.abs(means).max()
    assert jnp.abs(first - second).max() > 0.5


def test_fedala_mixes_by_examples_from_everywhere():
  """A block of four labels in their order has no gap."""
  seen = []

  def loss(params, batch, rng):
    jax.debug.callback(lambda labels: seen.extend(labels.tolist()), batch.y)
    return 0 * params['head']['bias'].sum()

  algorithm, server = begun('fedala', QUIET._replace(loss=loss), percent=50)
  data = in_order(range(8))
  client = algorithm.init_client(server, data, KEY(0))
  server = server._replace(round=jnp.array(1))
  personalize = jax.jit(algorithm.personalize)
  jax.block_until_ready(personalize(server, client, data, KEY(0)))
  jax.effects_barrier()
  assert len({*seen}) == 4 and np.ptp(seen) > 3


# ---- Per-FedAvg --------------------------------------------------------------


def test_the_first_order_of_per_fedavg_clips():
  train = PLAIN._replace(clip_norm=1e-6, weight_decay=0.0)
  algorithm, server = begun('per_fedavg', QUIET, train=train)
  _, up, _ = jax.jit(algorithm.local_update)(
    server, (), client_of(NINE, 0), KEY(0)
  )
  assert 0 < sum_squares(up, server.params) < 1e-10


def test_the_second_order_of_per_fedavg_differentiates_the_inner_step(float64):
  """Two steps on the one batch that there is; m has outer gradients alone."""
  train = PLAIN._replace(epochs=1, momentum=0.5, weight_decay=0.0)
  hp = {'train': train, 'beta': 0.1, 'second_order': True}
  algorithm, server = begun('per_fedavg', QUIET, **hp)
  data = client_of(make_data((3,)), 0)
  x = QUIET.normalise(data.x[data.index], KEY(0))
  batch = Batch(x, data.y[data.index], jnp.ones(3))

  def loss(params):
    return QUIET.loss(params, batch, KEY(0))

  def ahead(params):
    steps = jax.tree.map(lambda g: -0.05 * g, jax.grad(loss)(params))
    return loss(optax.apply_updates(params, steps))

  @jax.jit
  def both(params):
    tx, found = optax.sgd(0.1, 0.5), []
    state = tx.init(params)
    for _ in range(2):
      value, grads = jax.value_and_grad(ahead)(params)
      updates, state = tx.update(grads, state)
      params = optax.apply_updates(params, updates)
      found.append(value)
    return params, jnp.stack(found)

  _, up, metrics = jax.jit(algorithm.local_update)(server, (), data, KEY(0))
  assert_close((up, metrics['losses']), both(server.params))
  assert metrics['num_steps'] == 2 * 4


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


# ---- pFedMe ------------------------------------------------------------------

STEADY = TRAIN._replace(learning_rate=optax.constant_schedule(0.125))


def test_a_client_that_never_trained_is_evaluated_by_the_global_model():
  """Client 4 trained, client 3 did not, client 2 has nothing to train on."""
  (stage,) = build('pfedme', train=STEADY)
  server, clients, _ = play((stage,), DATA, rounds=1, cohort=(2, 4))

  @jax.jit
  def biases(client, data):
    views = stage.algorithm.personalize(server, client, data, KEY(0))
    return [views[name]['head']['bias'] for name in ('personal', 'initial')]

  for i in (2, 3, 4):
    own, other = biases(trees.gather(clients, i), client_of(DATA, i))
    assert (jnp.abs(own - other).max() > 1e-3) == (i == 4)


@pytest.mark.parametrize('linkage', ['single', 'complete'])
def test_cfl_divides_clusters_as_scikit_learn_does(linkage):
  clustering = pytest.importorskip('sklearn.cluster')
  rng = np.random.default_rng(0)
  for _ in range(8):
    likeness = rng.uniform(-1, 1, (9, 9))
    likeness += likeness.T
    cluster = rng.permutation([0, 0, 0, 0, 0, 1, 1, 1, 2])
    got = cfl.halves(
      jnp.array(likeness), cluster[:, None] == cluster, linkage == 'complete'
    )
    for number in range(2):
      rows = np.flatnonzero(cluster == number)
      model = clustering.AgglomerativeClustering(
        metric='precomputed', linkage=linkage
      )
      labels = model.fit(-likeness[np.ix_(rows, rows)]).labels_
      assert (got[rows] == (labels == labels[0])).all()
