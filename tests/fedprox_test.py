"""FedProx: what its cases do not say."""

import jax.numpy as jnp
import pytest
from helpers import assert_same_bits, build, make_data, play

from fedjax_pfl.errors import BadInput

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_body_without_a_term_is_fedbabu():
  data = make_data()
  want, _, _ = play(build('fedbabu'), data)
  got, _, _ = play(build('fedprox', mu=0.0, update_part='body'), data)
  assert_same_bits(got.params['head'], want.params['head'])
  for leaf, other in zip(
    got.params['body'].values(), want.params['body'].values(), strict=True
  ):
    assert jnp.allclose(leaf, other, atol=1e-5)


def test_a_pull_the_wrong_way_is_refused():
  with pytest.raises(BadInput, match=r'hp\.mu: got -0\.1.*a sign'):
    build('fedprox', mu=-0.1)
