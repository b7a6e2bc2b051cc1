"""One client moves what the server sees by at most the clip; noise; budget."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  ALGORITHMS,
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
  normal,
  refused,
  round_of,
  with_failures,
)
from small_runs import make_experiment

from fedjax_pfl.algorithms import load
from fedjax_pfl.around import gaussian, privacy
from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import JOINED, Senders
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.rounds import begin

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
UNIFORM = TRAIN._replace(aggregation='uniform')
QUIET = privacy.Mechanism(clip=0.3, noise_multiplier=0.0, expected=4.0)
# Refused: what they send to one client, as a whole number, or not at all.
UNFIT = 'fedas', 'fedconcat', 'feddyn', 'fednova', 'fedproto', 'scaffold'
UNFIT += 'fedtgp', 'fedgh', 'fd', 'fedgen'
REFUSED = 'fedamp', 'fedfomo', 'fedpac', 'ifca', 'local_only'
REFUSED += 'pfedgraph', 'cfl', 'pfedhn'
REFUSED += UNFIT
DELTA = 1e-5


def senders_of(size, sent=True):
  ids = jnp.arange(size)
  has_sent = jnp.ones(size, bool) & sent
  return Senders(ids, ids + 1, has_sent, 2 * size, rng=KEY(3))


def uploads(stage, states, ids):
  """Return random numbers in the place of what these clients would send."""
  update = client_update(stage.algorithm, states[0], DATA, KEY(2))
  cohort = gather(states[1], jnp.array(ids), DATA)
  _, up, _ = jax.eval_shape(jax.vmap(update), cohort)
  return jax.tree.map(lambda leaf: normal(*leaf.shape), up)


def norm_of(tree):
  rows = jax.tree.map(lambda leaf: leaf[None], tree)
  return trees.row_norms(rows, (1,)).item()


# ---- the sum


@every_method(3)
def test_a_client_moves_the_sum_by_at_most_the_clip(name):
  """And the server has nothing else of it; whatever it sends, or if 0.

  That it has nothing else: it does not see who sent which upload.
  """
  stages = build(name, train=UNIFORM)
  private = tuple(privacy.private(stage, QUIET) for stage in stages)
  unfit = getattr(load(name), 'NOT_CLIPPED', '')
  assert bool(unfit) == (name in UNFIT)
  if name in REFUSED:
    message = refused(privacy.check, private, DATA, name, unfit)
    assert message.startswith('dp.clip: got ') and f'{name}, whose' in message
    return
  privacy.check(private, DATA, name)
  (stage, *_) = private
  states = begin(stage, DATA, KEY(1))
  up = uploads(stage, states, COHORT)
  everyone = senders_of(len(COHORT))
  if not jax.tree.leaves(up):
    return
  factor = jnp.array([1e3, 1e-3, 0, 1, 1])
  scaled = jax.tree.map(
    lambda leaf: jax.vmap(jnp.multiply)(factor, leaf), up.content
  )

  @jax.jit
  def total(has_sent):
    senders = everyone._replace(has_sent=has_sent)
    mean, _ = privacy.private_mean(QUIET, scaled, senders, states[0].privacy)
    return jax.tree.map(lambda leaf: QUIET.expected * leaf, mean)

  norms = trees.row_norms(scaled, (len(COHORT),)).tolist()
  for client in range(len(COHORT)):
    others = everyone.ids != client
    moved = jax.tree.map(jnp.subtract, total(others | True), total(others))
    size = norm_of(moved)
    assert size == pytest.approx(min(norms[client], QUIET.clip), 1e-3)
  order = jnp.array([3, 0, 4, 1, 2])
  aggregate = jax.jit(
    lambda up: stage.algorithm.aggregate(states[0], up, everyone)
  )
  assert_close(aggregate(trees.gather(up, order)), aggregate(up))


def test_parts_of_uploads_that_are_no_model_are_named():
  for name, parts in (('fedproto', ['sums', 'weights']), ('fedper', [])):
    (stage,) = build(name)
    assert privacy.check((privacy.private(stage, QUIET),), DATA, name) == parts


def test_noise_is_that_of_the_multiplier_and_new_in_each_round():
  """Also where nobody has sent: that is not to be seen either."""
  from scipy.stats import kstest  # takes a second to load

  loud = QUIET._replace(noise_multiplier=2.0)
  changes = {'a': jnp.zeros((3, 200, 50)), 'b': jnp.zeros((3, 10_000))}
  state, means = privacy.State(jnp.asarray(0.3)), []
  for place, senders in enumerate((senders_of(3), senders_of(3, sent=False))):
    senders = senders._replace(rng=KEY(place))
    mean, state = privacy.private_mean(loud, changes, senders, state)
    means += [np.ravel(leaf) for leaf in mean.values()]
  for one in means:
    deviation = 2.0 * 0.3 / 4.0
    assert kstest(one / deviation, 'norm').pvalue > 1e-3
  correlation = np.corrcoef(means)
  assert np.abs(correlation[~np.eye(4, dtype=bool)]).max() < 0.05


def test_a_round_that_nobody_joins_has_noise_as_any_other():
  """Else the server would tell that nobody joined."""
  (stage,) = build('fedavg', train=UNIFORM)
  loud = QUIET._replace(noise_multiplier=2.0)
  private = with_failures(
    privacy.private(stage, loud), joining_rate=1e-9, is_private=True
  )
  server, clients = begin(private, DATA, KEY(1))
  after, _, metrics = round_of(private)(
    server, clients, jnp.array(COHORT), DATA, KEY(2)
  )
  assert not metrics[JOINED].any() and not metrics['num_steps'].any()
  moved = jax.tree.map(jnp.subtract, after.params, server.params)
  size = sum(leaf.size for leaf in jax.tree.leaves(moved))
  assert norm_of(moved) == pytest.approx(0.15 * size**0.5, rel=0.4)


@pytest.mark.parametrize('name', ['scaffold', long('feddyn')])
def test_empty_places_of_a_cohort_are_no_clients(name):
  """A Poisson cohort has more places than clients that join."""
  (plain,) = build(name, train=UNIFORM)
  stage = privacy.private(plain, QUIET)
  server, _ = states = begin(stage, DATA, KEY(1))
  up = uploads(stage, states, [0, 2, 5, 6])
  more = jax.tree.map(
    lambda x: jnp.pad(x, [(0, 5), *[(0, 0)] * (x.ndim - 1)]), up
  )
  places = senders_of(9, jnp.arange(9) < 4)._replace(num_clients=8)
  got, want = (
    jax.jit(lambda up, own=own: stage.algorithm.aggregate(server, up, own))(up)
    for up, own in ((more, places), (up, senders_of(4)))
  )
  assert_close(got, want)
  # The sum is that of all who sent, however many were expected.
  few = privacy.private(plain, QUIET._replace(expected=2.5)).algorithm
  after = jax.jit(lambda up: few.aggregate(server, up, senders_of(4)))(up)
  assert_close(after[2], want[2])  # c, and the sum of all v_i


def test_clients_that_drop_out_are_not_expected(accounting):
  dp = {'clip': 0.5, 'epsilon': 8.0, 'delta': DELTA}
  message = refused(
    lambda: make_experiment(dp=dp, algorithm='scaffold', save_clients=())
  )
  assert message.startswith("dp.clip: got 'scaffold, whose c is the mean")

  def expected_of(rate):
    how = {'dropout_rate': rate, 'sampling': 'poisson', 'save_clients': ()}
    (mechanism,) = make_experiment(dp=dp, **how).privacy.mechanisms()
    return mechanism.expected, mechanism.noise_multiplier

  (whole, noise), (half, same) = map(expected_of, (0.0, 0.5))
  assert half == whole / 2 and noise == same
  late = {'deadline': 3.0, 'client_speeds': 'lognormal', 'save_clients': ()}
  dp['clip_quantile'] = 0.5
  message = refused(lambda: make_experiment(dp=dp, **late))
  assert message.startswith(
    'dp.clip_quantile: got 0.5, expected 0.0 with deadl'
  )


def test_the_clip_moves_to_the_quantile():
  """By hand for one step; then norms of 1 to 100, of which 80 % lie below."""
  adaptive = privacy.Mechanism(1.0, 0.0, expected=100.0, quantile=0.8)
  assert adaptive._replace(noise_multiplier=1.0).noise_of_sum == pytest.approx(
    (1 - 1 / 10**2) ** -0.5
  )
  changes = {'a': jnp.arange(1.0, 101)[:, None]}
  state = privacy.State(jnp.asarray(1.0))
  everyone = senders_of(100)

  @jax.jit
  def step(state, key):
    senders = everyone._replace(rng=key)
    return privacy.private_mean(adaptive, changes, senders, state)[1]

  first = step(state, KEY(3))
  own = jax.random.split(jax.random.fold_in(KEY(3), privacy.STREAM))[1]
  share = 0.5 + (1 - 50 + 5 * gaussian.normal(own)) / 100
  assert first.clip == pytest.approx(np.exp(-0.2 * (share - 0.8)))
  for number in range(100):
    state = step(state, KEY(number))
  assert state.clip == pytest.approx(80, rel=0.1)


# ---- what a client reads


def leaking(stage, at_start=None, in_round=None, mixes=False):
  """Return the stage whose uploads hold what these functions read of data.

  What is read at the start is kept; `mixes` gives it to the next client.
  """
  method = stage.algorithm

  def init_client(server, data, rng):
    own = method.init_client(server, data, rng)
    return own, at_start(data) if at_start else jnp.zeros(())

  def local_update(down, client, data, rng):
    own, kept = client
    own, up, metrics = method.local_update(down, own, data, rng)
    more = kept + (in_round(data) if in_round else 0)
    return (own, kept), jax.tree.map(lambda leaf: leaf + more, up), metrics

  def initialize(server, clients, data):
    own, kept = clients
    return server, (own, jnp.roll(kept, 1))

  functions = {'init_client': init_client, 'local_update': local_update}
  download = lambda server, client: method.download(server, client[0])
  stage = replaced(stage, **functions, download=download)
  return stage._replace(initialize=initialize) if mixes else stage


def mean_of(rows):
  return jnp.mean(rows.astype(float))


EMPTY = COUNTS.index(0)  # of these clients: it has no examples
LEAKS = {
  'all': {'in_round': lambda data: mean_of(data.x[:])},
  'labels': {'in_round': lambda data: mean_of(data.y[:])},
  'padding': {'in_round': lambda data: mean_of(data.x[data.index])},
  'kept': {'at_start': lambda data: mean_of(data.x[0])},
  'next': {'at_start': lambda data: mean_of(data.x[data.index]), 'mixes': True},
}


@pytest.mark.parametrize('client', [EMPTY, 6])
@pytest.mark.parametrize('name', LEAKS)
def test_no_upload_depends_on_the_data_of_others(name, client):
  """To the bit, whatever the code of a method reads."""
  (plain,) = build('fedavg', train=UNIFORM)
  own = DATA.index[client, : DATA.count[client]]
  keep = jnp.zeros(len(DATA.y), bool).at[own].set(True)
  others = DATA._replace(
    x=jnp.where(keep[:, None, None, None], DATA.x, 255 - DATA.x),
    y=jnp.where(keep, DATA.y, 0),
  )

  def upload(stage, data):
    server, clients = begin(stage, data, KEY(1))
    update = client_update(stage.algorithm, server, data, KEY(2))
    return jax.vmap(update)(gather(clients, jnp.array([client]), data))[1]

  stage = leaking(plain, **LEAKS[name])
  one, other = (upload(stage, data) for data in (DATA, others))
  assert not jax.tree.all(jax.tree.map(jnp.array_equal, one, other))
  one, other = (upload(privacy.alone(stage), data) for data in (DATA, others))
  assert_same_bits(one, other)


@every_method(3, [name for name in ALGORITHMS if name not in REFUSED])
def test_own_examples_are_all_that_a_method_reads(name):
  """A round of a client alone has the numbers of one with the pool."""
  (stage, *_) = build(name, train=UNIFORM)
  states = begin(stage, DATA, KEY(1))
  assert_close(begin(privacy.alone(stage), DATA, KEY(1)), states)
  rows = gather(states[1], jnp.array(COHORT), DATA)
  got, want = (
    jax.jit(jax.vmap(client_update(own.algorithm, states[0], DATA, KEY(2))))(
      rows
    )
    for own in (privacy.alone(stage), stage)
  )
  assert_close(got, want)


def test_who_gets_all_examples_is_refused():
  (stage,) = build('fedavg', train=UNIFORM)

  def prepare_data(server, data):
    everything = jnp.tile(jnp.arange(len(data.y)), (len(data.count), 1))
    count = jnp.full_like(data.count, len(data.y))
    return data._replace(index=everything, count=count)

  stage = privacy.private(stage._replace(prepare_data=prepare_data), QUIET)
  message = refused(privacy.check, (stage,), DATA, 'fedavg')
  assert 'fedavg, whose prepare_data decides' in message
