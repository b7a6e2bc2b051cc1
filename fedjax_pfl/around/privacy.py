"""Central differential privacy of clients (McMahan et al. 2018).

  d_i <- the change of upload i (exchange.py)          |.| over all its leaves
  s   <- sum_{i in S} min(1, c / |d_i|) d_i  +  N(0, (z c)^2)     on the server
  the method aggregates as if n clients had each sent s / n

n is the expected number of S, those of the cohort who do not drop out, and S is
never counted. The method sees no single upload, no number of examples, and
neither who was drawn nor who failed: all it does is post-processing of s, which
one client moves by at most c.

With a quantile gamma the clip moves there (Andrew et al. 2021), from one more
noised sum, for which the first pays with more noise of its own:

  b   <- 1/2 + 1/n (sum_{i in S} ([|d_i| <= c] - 1/2)  +  N(0, (n / 20)^2))
  c   <- c exp(-0.2 (b - gamma))
  z_s <- (1 / z^2 - (10 / n)^2)^(-1/2)                 in the place of z in s

With several bands the noise of a round, in clips, takes back a part of the
noise before (banded_noise.py). The server keeps that; each stage begins anew.
The clip may move: it scales what is added, not what is kept.

Whoever knows the key of the round can remove the noise: a run draws it from a
secret (runs/secret.py). A change with NaN or infinity is 0.

That one client moves s by c takes that no upload depends on another client. So
the functions of one client get its examples alone (`alone`), and no other way
to them is left, but what the code of a method holds or calls itself.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from fedjax_pfl.around import banded_noise, gaussian
from fedjax_pfl.around.exchange import MODEL, exchanging
from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  Client,
  Senders,
  Server,
  Stage,
  as_stored,
  unchanged,
)
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.rules import Rule, at_least, count, interval
from fedjax_pfl.core.types import Array, ClientData, PyTree
from fedjax_pfl.federated.communication import messages, of_first
from fedjax_pfl.federated.rounds import init_states, stage_shapes

STREAM = 2**31 - 3  # of the server's key; methods use small numbers
RATE = 0.2  # of an adaptive clip
FIELD = 'privacy'  # of the server's record
NOISE = f'/{FIELD}/noise/'  # on the paths of leaves of its state
SETTING = 'dp.clip'
LEAST = 0.01  # noise multiplier; 60 rounds with it cost an epsilon of 300,000
INSTEAD = ['dp.clip=0, which is no privacy', 'fedavg, fedbabu, ditto or others']


@record('dp.')
class Privacy:
  """Differential privacy of clients, by noise in the sum of their changes.

  Args:
    clip: largest norm of what a client changes in a round; 0: no privacy
    clip_quantile: the clip follows this quantile of the norms; 0: it stays
    noise_multiplier: deviation of the new noise in a sum, in clips; 0: as
      dp.epsilon needs
    epsilon: budget of the run, from which its noise follows
    delta: of the budget; far below 1 / num_clients
    bands: rounds whose noise the noise of a round takes back in part, and that
      round itself, with sampling=cyclic; 1: noise is independent
    noise_seed: noise and cohorts follow from this number, so that a test can
      repeat them: whoever guesses it can remove the noise; None: from a secret
  """

  clip: float = field(0.0, at_least(0))
  clip_quantile: float = field(0.0, interval('[0, 1)', 'a percentage'))
  noise_multiplier: float = field(
    0.0,
    Rule(
      lambda value: value == 0 or at_least(LEAST).holds(value),
      f'a number, {LEAST} or more, or 0: as dp.epsilon needs',
      'noise in the scale of weights: it is in clips',
    ),
  )
  epsilon: float = field(0.0, at_least(0))
  delta: float = field(0.0, interval('[0, 1)', 'an exponent: write 1e-5'))
  bands: int = field(1, count('bands'))
  noise_seed: int | None = field(
    None, count('a seed', smallest=0).or_none('from a secret')
  )

  def __bool__(self) -> bool:
    return self.clip > 0


class Mechanism(NamedTuple):
  """What is done to the uploads of a round."""

  clip: float  # c, or the first one
  noise_multiplier: float  # z
  expected: float  # n, clients that send
  quantile: float = 0.0  # gamma; 0: the clip stays
  bands: int = 1  # of the noise; 1: independent in every round
  change: PyTree | None = None  # with several: shapes of what a client changes

  @property
  def largest_noise(self) -> float:
    """Return the z that a noised count of n clients alone would have."""
    return self.expected / 10

  @property
  def noise_of_sum(self) -> float:
    """Return z, or z_s of an adaptive clip."""
    z = self.noise_multiplier
    if not self.quantile or not z:
      return z
    return (z**-2 - self.largest_noise**-2) ** -0.5


class State(NamedTuple):
  """What the server keeps between rounds."""

  clip: Array  # [] c
  noise: PyTree = ()  # [b - 1, ...] of the rounds before, in deviations


@struct.dataclass
class OwnRows:
  """The examples of one client, in the place of those of all; only indexed."""

  pool: Array
  rows: Array  # [N] of the pool
  count: Array  # []

  shape = property(lambda self: (*self.rows.shape, *self.pool.shape[1:]))
  dtype = property(lambda self: self.pool.dtype)
  ndim = property(lambda self: self.pool.ndim)

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: Array | slice) -> Array:
    """Return the examples in these places; zeros of a client without any."""
    return jnp.where(self.count > 0, self.pool[self.rows[index]], 0)


def own_rows(data: ClientData) -> ClientData:
  """Return the data of one client without a way to those of the others.

  Padding, which points to an example of anybody, is its own first.
  """
  places = jnp.arange(len(data.index), dtype=data.index.dtype)
  rows = jnp.where(places < data.count, data.index, data.index[0])
  x, y = (OwnRows(pool, rows, data.count) for pool in (data.x, data.y))
  return data._replace(x=x, y=y, index=places)


def alone(stage: Stage) -> Stage:
  """Return the stage in which a client reads and keeps its own alone."""
  method = stage.algorithm

  def init_client(server, data, rng):
    return method.init_client(server, own_rows(data), rng)

  def local_update(down, client, data, rng):
    return method.local_update(down, client, own_rows(data), rng)

  def initialize(server, clients, data):
    def of_one(client, index, count):
      own = own_rows(data._replace(index=index, count=count))
      own = own._replace(index=own.index[None], count=count[None])
      client = jax.tree.map(lambda leaf: leaf[None], client)
      return trees.gather(stage.initialize(server, client, own)[1], 0)

    after, _ = stage.initialize(server, clients, data)
    return after, jax.vmap(of_one)(clients, data.index, data.count)

  own = replaced(stage, init_client=init_client, local_update=local_update)
  if stage.initialize is unchanged:  # which the engine knows
    return own
  return own._replace(initialize=initialize)


def private(stage: Stage, mechanism: Mechanism) -> Stage:
  """Return the stage whose server adds noise to the sum of clipped changes."""
  has_bands = mechanism.bands > 1

  def begin(server, rng, previous):
    noise = ()
    if has_bands:
      noise = banded_noise.begin(mechanism.change, mechanism.bands)
    if previous is None:
      return State(jnp.asarray(mechanism.clip, float), noise)
    return previous._replace(noise=noise)  # the clip goes on

  def receive(changes, senders, state):
    mean, state = private_mean(mechanism, changes, senders, state)
    # Some places stay empty: a Poisson cohort has more of them than n.
    ids = jnp.arange(len(senders.ids))
    number = max(1, round(mechanism.expected))
    sends = ids < number
    counts = sends.astype(senders.counts.dtype)
    nobody = senders._replace(ids=ids, counts=counts, has_sent=sends)
    nobody = nobody._replace(factor=mechanism.expected / number)
    copies = jax.tree.map(partial(jnp.multiply.outer, sends), mean)
    return copies, nobody, state

  def send(change, memory, rng):
    return change, memory, {}

  return exchanging(
    alone(stage), FIELD, send, receive, begin, begins_anew=has_bands
  )


def private_mean(
  mechanism: Mechanism, changes: PyTree, senders: Senders, state: State
) -> tuple[PyTree, State]:
  """Return s / n of the changes [C, ...], and the state of the next round."""
  norms = trees.row_norms(changes, senders.ids.shape)  # [C]
  is_finite = jnp.isfinite(norms)
  zeros = trees.zeros(changes)
  changes = jax.vmap(trees.choose)(is_finite, changes, zeros)
  norms = jnp.where(is_finite, norms, jnp.inf)
  scale = jnp.minimum(1, state.clip / jnp.maximum(norms, 1e-30))
  total = senders.sum(changes, scale)
  of_sum, of_count = jax.random.split(jax.random.fold_in(senders.rng, STREAM))
  noise, past = gaussian.noise_like(of_sum, total), state.noise
  if mechanism.bands > 1:
    noise, past = banded_noise.correlate(noise, past, mechanism.bands)
  deviation = mechanism.noise_of_sum * state.clip
  noised = jax.tree.map(lambda leaf, own: leaf + deviation * own, total, noise)
  mean = jax.tree.map(lambda leaf: leaf / mechanism.expected, noised)
  clip = state.clip
  if mechanism.quantile:
    count = jnp.sum(senders.masked((norms <= clip) - 0.5))
    count += mechanism.expected / 20 * gaussian.normal(of_count)
    share = 0.5 + count / mechanism.expected
    clip = clip * jnp.exp(-RATE * (share - mechanism.quantile))
  return mean, State(clip, past)


# ---- what cannot be private --------------------------------------------------


def check(
  stages: tuple[Stage, ...], data: ClientData, method: str, unfit: str = ''
) -> list[str]:
  """Return the parts of uploads that are no change of a model, by name.

  They are clipped with the rest. Refused is what reaches the server, or other
  clients, past the noised sum, and a method that is `unfit` (its NOT_CLIPPED).
  """
  if unfit:
    instead = 'a method whose equations hold for clipped uploads'
    raise _refused(f'{method}, {unfit}', instead)
  start, key = partial(init_states, stages[0].algorithm), jax.random.key(0)
  before, whole = jax.eval_shape(start, data, key), []
  for stage, *states in stage_shapes(stages, data):
    if stage.algorithm.respond is not None:
      raise _refused(
        f'{method}, whose server answers each client from single uploads',
        'a method that aggregates a sum: noise in a sum does not hide these',
      )
    if stage.prepare_data is not as_stored:
      got = f'{method}, whose prepare_data decides what examples a client has'
      raise _refused(got, 'a method that trains each client on its own')
    up = messages(stage, *states, data).up
    if not jax.tree.leaves(up.content):
      instead = 'a method whose clients send something that noise can hide'
      raise _refused(f'{method}, whose clients send nothing', instead)
    for name, leaf in trees.named(up.content).items():
      if not jnp.issubdtype(leaf.dtype, jnp.floating):
        got = f'{method}, whose clients send {name}, whole numbers'
        raise _refused(got, 'uploads of numbers that a clip can make smaller')
      if MODEL + name.removeprefix(MODEL) not in up.known:
        whole.append(name.split('/')[0] or 'the upload')
    begins = lambda *states, own=stage: own.initialize(*states)[0]
    has_rows = stage.algorithm.server_rows is not None
    if has_rows or any(trees.reads(begins, *before, data)[1:]):
      raise _refused(
        f'{method}, whose server reads what clients have not sent',
        'a method whose server knows of clients what they send alone',
      )
    before = states
  return list(dict.fromkeys(whole))


def changes_of(stages: tuple[Stage, ...], data: ClientData) -> list[PyTree]:
  """Return the shapes of what one client changes in each of these stages."""
  return [
    messages(stage, *states, data).up.content
    for stage, *states in stage_shapes(stages, data)
  ]


def uploads_have_state(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> bool:
  """Return whether uploads depend on what clients keep between rounds."""
  upload = lambda *args: of_first(stage, *args).up
  return trees.reads(upload, server, clients, data)[1]


def _refused(got: str, expected: str):
  return bad_input(SETTING, got=got, expected=expected, choices=INSTEAD)
