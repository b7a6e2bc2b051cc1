"""Rounds of a method that only counts, without model and loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_method import DATA, counting, start
from helpers import (
  COHORT,
  COUNTS,
  KEY,
  assert_same_bits,
  build,
  every_method,
  refused,
)

from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.placement import unshared
from fedjax_pfl.federated.sampling import (
  cohort_size,
  sample_cohort,
  sample_cohorts,
)

pytestmark = pytest.mark.usefixtures('quick_compiler')
IDS = np.arange(len(COUNTS))


def one_round(cohort=COHORT, algorithm=None, **options):
  algorithm = algorithm or counting()
  round_fn = rounds.make_round(algorithm, **options)
  return round_fn(*start(algorithm), jnp.array(cohort), DATA, KEY(2))


# ---- cohorts ---------------------------------------------------------------


@pytest.mark.parametrize(
  ('clients', 'size', 'rounds'), [(12, 5, 400), (3000, 30, 1000)]
)
def test_clients_are_drawn_about_equally_often(clients, size, rounds):
  """Of more than 2,000 clients, too, which are not permuted."""
  cohorts = sample_cohorts(KEY(3), 0, rounds, clients, size)
  visits = np.bincount(np.ravel(cohorts), minlength=clients)
  share = size / clients
  deviation = np.sqrt(rounds * share * (1 - share))
  assert visits.shape == (clients,) and visits.sum() == rounds * size
  assert visits.std() < 1.5 * deviation
  assert np.abs(visits - rounds * share).max() < 5 * deviation


def test_a_percentage_is_no_fraction():
  """All clients would take part in every round."""
  message = refused(cohort_size, 100, 10)
  assert message.startswith('fraction: got 10, expected a fraction above 0')
  message = refused(sample_cohort, KEY(0), 3, 10)
  assert message.startswith('size: got 10, expected from 1 to 3')


@pytest.mark.parametrize('clients', [2_000, 2_001])
def test_cohorts_of_several_rounds_are_those_of_single_rounds(clients):
  cohorts = sample_cohorts(KEY(0), 5, 2, clients, 10)
  for number, cohort in zip((5, 6), cohorts, strict=True):
    key = jax.random.fold_in(KEY(0), number)
    assert_same_bits(cohort, sample_cohort(key, clients, 10))
    assert (jnp.diff(cohort) > 0).all() and cohort[-1] < clients


def test_a_cohort_is_the_first_places_of_a_permutation():
  """Stored results depend on it: of up to 2,000 clients."""
  for clients in (6, 100, 1488, 1543, 2000):
    places = jax.random.permutation(KEY(3), clients)[:5]
    assert_same_bits(sample_cohort(KEY(3), clients, 5), jnp.sort(places))


# ---- rounds ----------------------------------------------------------------


def test_only_the_cohorts_rows_change():
  """And metrics follow the order of the cohort."""
  _, before = start()
  server, clients, metrics = one_round()
  assert metrics['count'].tolist() == [COUNTS[i] for i in COHORT]
  took_part = np.isin(IDS, COHORT)
  assert clients.visits.tolist() == took_part.astype(int).tolist()
  assert_same_bits(clients.birth, before.birth)
  assert ((clients.last > 0) == took_part).all()
  assert server.round == 1
  sent = sum(COUNTS[i] for i in COHORT)
  np.testing.assert_allclose(server.total, start()[0].total + sent, rtol=1e-6)


@pytest.mark.parametrize('backend', rounds.BACKENDS)
def test_the_server_has_the_key_of_id_k_and_its_examples(backend):
  method = counting()

  def aggregate(server, up, senders):
    server = method.aggregate(server, up, senders)
    labels = senders.data.y[senders.data.index]
    drawn = jax.random.uniform(senders.rng) + jnp.sum(labels)
    return server._replace(total=server.total + drawn)

  plain, _, _ = one_round()
  reading = method._replace(aggregate=aggregate, server_rows=np.arange)
  server, clients, _ = one_round(algorithm=reading, backend=backend)
  rng = jax.random.fold_in(jax.random.fold_in(KEY(2), 0), len(COUNTS))
  drawn = jax.random.uniform(rng)
  assert server.round == 1
  assert float(drawn) not in clients.last.tolist()
  want = plain.total + drawn + DATA.y.sum()
  np.testing.assert_allclose(server.total, want, rtol=1e-6)


def test_keys_are_those_of_round_and_client():
  """fold_in(fold_in(key, round), client), the round being the server's."""
  server, clients = start()
  server = server._replace(round=jnp.array(7))
  round_fn = rounds.make_round(counting())
  _, clients, _ = round_fn(server, clients, jnp.array([5, 2]), DATA, KEY(2))
  for client in (2, 5):
    rng = jax.random.fold_in(jax.random.fold_in(KEY(2), 7), client)
    assert clients.last[client] == jax.random.uniform(rng)


def test_states_are_written_where_those_before_were():
  """With the bits of rounds that leave their arguments alone."""
  args = jnp.array([COHORT, (6, 0, 1, 2, 3)]), DATA, KEY(2)
  server, clients = start()
  clients = clients._replace(last=clients.birth)
  want = rounds.make_round(counting())(server, clients, *args)
  states = unshared(clients, (server, clients.visits))
  where = [leaf.unsafe_buffer_pointer() for leaf in states]
  assert states.birth is clients.birth and len({*where}) == len(where)
  rounds_fn = rounds.compile_rounds(lambda _: counting(), 1, in_place=True)
  got = rounds_fn({}, server, states, *args)
  assert_same_bits(got, want)
  assert where == [leaf.unsafe_buffer_pointer() for leaf in got[1]]
  assert states.visits.is_deleted() and not clients.visits.is_deleted()


# ---- compilation -----------------------------------------------------------


@every_method(1)
def test_five_rounds_are_compiled_once(name, compiled):
  algorithm = build(name)[0].algorithm
  states = rounds.init_states(algorithm, DATA, KEY(1))
  round_fn = rounds.make_round(algorithm)
  for number in range(5):
    cohort = jnp.array(COHORT) if number % 2 else jnp.array(COHORT[::-1])
    *states, _ = round_fn(*states, cohort, DATA, KEY(number))
  assert compiled.count('jit(rounds)') == 1


# ---- errors -------------------------------------------------------------


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'clients_per_chunk': 0}, 'whole number'),
    ({'backend': 'lop'}, 'Choices: vmap, loop (did you mean loop?)'),
  ],
)
def test_bad_options(options, words):
  message = refused(lambda: rounds.make_round(counting(), **options))
  ((name, value),) = options.items()
  assert message.startswith(f'{name}: got {value!r}') and words in message


@pytest.mark.parametrize(
  ('fails', 'who'), [('local_update', 'client 5'), ('aggregate', 'server')]
)
def test_loop_names_who_failed_stage_and_round(fails, who):
  """Client 5 is the one with five examples."""

  def fail(*args):
    if fails == 'aggregate' or int(args[2].count) == 5:
      raise FloatingPointError('too hot')
    return counting().local_update(*args)

  server, clients = start()
  server = server._replace(round=jnp.array(8))
  algorithm = counting()._replace(**{fails: fail})
  round_fn = rounds.make_round(algorithm, backend='loop', name='warm-up')
  with pytest.raises(RuntimeError) as error:
    round_fn(server, clients, jnp.array(COHORT), DATA, KEY(2))
  assert str(error.value) == (
    f'{who}, stage "warm-up", round 9: FloatingPointError: too hot'
  )
  assert isinstance(error.value.__cause__, FloatingPointError)
