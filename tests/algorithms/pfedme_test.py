"""pFedMe: what its case does not say."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import (
  KEY,
  TRAIN,
  assert_close,
  build,
  client_of,
  make_data,
  play,
)

from fedjax_pfl.client import global_model
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.cohort import all_send

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()
STEADY = TRAIN._replace(learning_rate=optax.constant_schedule(0.125))


def test_one_inner_step_and_lam_of_one_over_eta_is_fedavg():
  """Without momentum: that of `train` is not used."""
  plain = STEADY._replace(momentum=0.0)
  want, _, _ = play(build('fedavg', train=plain)[:1], DATA)
  hp = {'inner_steps': 1, 'inner_lr': 0.125, 'lam': 8.0}
  got, _, _ = play(build('pfedme', train=STEADY, **hp), DATA)
  assert_close(got.params, want.params)


def test_beta_is_the_share_of_the_mean():
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
    client = jax.tree.map(lambda leaf, i=i: leaf[i], clients)
    views = stage.algorithm.personalize(
      server, client, client_of(DATA, i), KEY(0)
    )
    own, other = (
      views[name]['head']['bias'] for name in ('personal', 'initial')
    )
    assert (jnp.abs(own - other).max() > 1e-3) == (i == 4)


@pytest.mark.parametrize(
  'field, value, sentence',
  [
    ('inner_steps', 0, r'hp\.inner_steps: got 0.*1 or more.*another method'),
    ('inner_steps', 2.5, r'hp\.inner_steps: got 2\.5.*a whole number'),
    ('inner_lr', 0.0, r'hp\.inner_lr: got 0\.0.*above 0'),
    ('lam', -5.0, r'hp\.lam: got -5\.0.*above 0'),
    ('beta', 0.0, r'hp\.beta: got 0\.0.*above 0'),
    ('beta', float('inf'), r'hp\.beta: got inf'),
  ],
)
def test_bad_settings_are_refused(field, value, sentence):
  with pytest.raises(BadInput, match=sentence):
    build('pfedme', **{field: value})
