"""FedRS and FedLC: what their cases do not say."""

import jax
import jax.numpy as jnp
import pytest
from helpers import KEY, build, make_task

from fedjax_pfl.algorithms import fedlc
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_padding_of_a_class_that_fedlc_leaves_out_changes_nothing():
  task = make_task()
  batch = Batch(
    jnp.ones((2, 2, 2, 1)), jnp.array([0, 2]), jnp.array([1.0, 0.0])
  )
  counts = jnp.array([3, 1, 0])
  loss, grads = jax.jit(jax.value_and_grad(fedlc.objective(task, counts, 1.0)))(
    task.init(KEY(0)), batch, KEY(0)
  )
  for leaf in (loss, *jax.tree.leaves(grads)):
    assert jnp.isfinite(leaf).all()


@pytest.mark.parametrize(
  'name, field, value, cause',
  [
    ('fedrs', 'alpha', -0.1, 'a percentage'),
    ('fedrs', 'alpha', 50.0, 'a percentage'),
    ('fedlc', 'tau', -1.0, 'a sign'),
  ],
)
def test_bad_hyperparameters_are_refused(name, field, value, cause):
  message = rf'hp\.{field}: got {value}, expected a number.*{cause}'
  with pytest.raises(BadInput, match=message):
    build(name, **{field: value})
