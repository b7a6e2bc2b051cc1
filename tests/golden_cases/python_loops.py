"""Run local training as a loop in Python over compiled networks.

Compiling a client's whole training takes many times what running it takes,
and each method is a program of its own. So the golden cases share a few small
programs: the network's loss, its gradient, its outputs. That the compiled
loop gives the same as this one is tested for every method in
tests/algorithms/contract_test.py, and for weighted FedAvg in
rounds.py.
"""

from types import SimpleNamespace
from unittest import mock

import jax

from fedjax_pfl.client import local_training, personalization


def fori_loop(first, last, body, carry):
  for number in range(int(first), int(last)):
    carry = body(number, carry)
  return carry


LOOPS = SimpleNamespace(fori_loop=fori_loop)


def stepwise(fn):
  """Return fn with the loops of local training in Python."""

  def run(*args):
    with (
      mock.patch.object(local_training, 'lax', LOOPS),
      mock.patch.object(personalization, 'lax', LOOPS),
    ):
      return fn(*args)

  return run


def compiled(task):
  """Return the task with functions that are compiled one by one."""
  value_and_grad = jax.jit(jax.value_and_grad(task.loss))

  @jax.custom_vjp
  def loss(params, batch, key):
    return value_and_grad(params, batch, key)[0]

  def forward(params, batch, key):
    return value_and_grad(params, batch, key)

  def backward(grads, scale):
    return jax.tree.map(lambda leaf: scale * leaf, grads), None, None

  loss.defvjp(forward, backward)
  return task._replace(
    features=jax.jit(task.features),
    logits=jax.jit(task.logits),
    loss=loss,
    train_outputs=jax.jit(task.train_outputs),
  )
