"""Normal numbers: their distribution, and their tails."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY

from fedjax_pfl.around import gaussian

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_radius_is_right_to_the_last_of_64_bits():
  """Near 0, where tails are, near 1, and where the two forms meet."""
  numbers = [0, 1, 2**20, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**63 + 1]
  numbers += [2**64 - 1 - number for number in numbers[:6]]
  halves = [[n >> 32, n & (2**32 - 1)] for n in numbers]
  high, low = np.array(halves, np.uint32).T
  want = []
  for number in numbers:
    share, rest = (number + 0.5) / 2**64, (2**64 - number - 0.5) / 2**64
    log = math.log(share) if share < 0.5 else math.log1p(-rest)
    want.append(math.sqrt(-2 * log))
  got = gaussian.radius_of(jnp.asarray(high), jnp.asarray(low))
  np.testing.assert_allclose(got, want, rtol=1e-5)
  assert got[0] > 9.4


@pytest.mark.usefixtures('float64')
def test_double_numbers_are_normal():
  double = lambda key: gaussian.normal(key, (20_000,), jnp.float64)
  z = np.asarray(jax.jit(double)(KEY(1)))
  assert z.dtype == np.float64 and abs(z.std() - 1) < 0.03


def test_numbers_are_normal_and_independent():
  from scipy.stats import kstest, norm  # takes a second to load

  number = 400_001
  z = np.asarray(jax.jit(lambda key: gaussian.normal(key, (number,)))(KEY(1)))
  assert kstest(z[::4], 'norm').pvalue > 1e-3
  for bound in (3.0, 4.0):
    share = 2 * norm.sf(bound)
    found = np.mean(np.abs(z) > bound)
    assert abs(found - share) < 4 * math.sqrt(share / number)
  half = number // 2
  for shift in (1, half):
    assert abs(np.corrcoef(z[:-shift], z[shift:])[0, 1]) < 0.01
  tree = gaussian.noise_like(KEY(2), {'a': z[:100], 'b': z[:100]})
  assert abs(np.corrcoef(tree['a'], tree['b'])[0, 1]) < 0.4
