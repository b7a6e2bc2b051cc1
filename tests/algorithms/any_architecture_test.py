"""Methods whose clients send a student of one shape beside their models."""

import jax
import pytest
from helpers import build, make_data, make_task, refused

from fedjax_pfl.core.trees import kinds
from fedjax_pfl.federated.communication import messages
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import student_of

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.mark.parametrize('name', ['fml', 'fedkd'])
def test_models_of_any_width_send_the_student(name):
  data, student = make_data(), make_task(hidden=3)

  def sent_of(hidden):
    task = make_task(hidden=hidden)._replace(sibling=lambda name: student)
    stages = build(name, task, student='convnet3')
    ((stage, *states),) = stage_shapes(stages, data)
    return states[0], messages(stage, *states, data)

  (server, sent), (other, wide) = sent_of(5), sent_of(7)
  shared, same = (server, sent.up, sent.down), (other, wide.up, wide.down)
  assert kinds(shared) == kinds(same)
  assert kinds(sent.state) != kinds(wide.state)
  params = jax.eval_shape(student.init, jax.random.key(0))
  assert kinds(sent.up) == kinds(params)


def test_a_student_is_one_of_the_list_or_as_its_client():
  task = make_task()
  assert student_of(task, '') is task
  assert 'convnet3' in refused(student_of, task, 'convnet33')
  assert 'your own' in refused(student_of, task, 'convnet3')
