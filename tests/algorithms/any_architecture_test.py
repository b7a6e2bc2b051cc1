"""Methods for clients of different models: no message has the shape of one."""

import jax
import pytest
from helpers import build, make_data, make_task, refused

from fedjax_pfl.core.trees import kinds
from fedjax_pfl.federated.communication import messages
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import student_of

pytestmark = pytest.mark.usefixtures('quick_compiler')


def shapes(name, task, shape, **hp):
  """Return server, upload and download, and what a client keeps, as shapes."""
  data = make_data(shape=shape)
  ((stage, server, clients),) = stage_shapes(build(name, task, **hp), data)
  sent = messages(stage, server, clients, data)
  return (server, sent.up, sent.down), sent.state


@pytest.mark.parametrize('name', ['fedtgp', 'fedgh', 'fd'])
def test_bodies_of_one_width_send_the_same(name):
  found = [
    shapes(name, make_task(shape=shape), shape)
    for shape in ((2, 2, 1), (4, 4, 1))
  ]
  (one, first), (other, second) = found
  assert kinds(one) == kinds(other)
  assert kinds(first) != kinds(second)


@pytest.mark.parametrize('name', ['fml', 'fedkd'])
def test_models_of_any_width_send_the_student(name):
  student = make_task(hidden=3)

  def of(hidden):
    task = make_task(hidden=hidden)._replace(sibling=lambda name: student)
    return shapes(name, task, (2, 2, 1), student='convnet3')

  (one, first), (other, second) = of(5), of(7)
  assert kinds(one) == kinds(other)
  assert kinds(first) != kinds(second)
  params = jax.eval_shape(student.init, jax.random.key(0))
  assert kinds(one[1]) == kinds(params)


def test_a_student_is_one_of_the_list_or_as_its_client():
  task = make_task()
  assert student_of(task, '') is task
  assert 'convnet3' in refused(student_of, task, 'convnet33')
  assert 'your own' in refused(student_of, task, 'convnet3')
