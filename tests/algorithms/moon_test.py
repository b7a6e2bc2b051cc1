"""MOON: what its cases do not say."""

import jax
import jax.numpy as jnp
import pytest
from helpers import KEY, build, client_of, make_data, make_task

from fedjax_pfl.algorithms import moon
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Batch

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_contrast_begins_with_the_second_round_of_a_client():
  """Whatever the round of the server is then."""
  algorithm = build('moon')[0].algorithm
  server = algorithm.init_server(KEY(0))._replace(round=jnp.asarray(1))
  one = client_of(make_data(), 0)
  client = algorithm.init_client(server, one, KEY(0))
  update = jax.jit(algorithm.local_update)
  client, _, first = update(server, client, one, KEY(1))
  _, _, second = update(server, client, one, KEY(2))
  assert (first['contrasts'] == 0).all()
  steps = int(second['num_steps'])
  assert (second['contrasts'][:steps] > 0.1).all()


def test_gradient_of_moon_runs_through_one_forward_pass():
  """The other two add their own products, one each here, and no more.

  Even where somebody asks for the gradient of all three models.
  """
  task = make_task()
  params = jax.eval_shape(task.init, KEY(0))
  batch = Batch(jnp.zeros((4, 2, 2, 1)), jnp.zeros(4, int), jnp.ones(4))

  def contrasted(params, anchor, last):
    client = moon.Client(last, True)
    loss = moon.objective(task, anchor, client, 1.0, 0.5)
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
  zeros, ones = jnp.zeros((1, 3)), jnp.ones((1, 3))
  for other in (zeros, ones):
    value, grads = jax.value_and_grad(lambda u, v: moon.cosine(u, v)[0])(
      zeros, other
    )
    assert value == 0
    assert jnp.isfinite(grads).all()


@pytest.mark.parametrize(
  'field, value, cause',
  [
    ('mu', -0.1, 'a sign'),
    ('mu', float('nan'), 'a sign'),
    ('temperature', 0.0, r'that is hp\.mu=0'),
  ],
)
def test_bad_hyperparameters_are_refused(field, value, cause):
  message = rf'hp\.{field}: got {value}, expected a number.*{cause}'
  with pytest.raises(BadInput, match=message):
    build('moon', **{field: value})
