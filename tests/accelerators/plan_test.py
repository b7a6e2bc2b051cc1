"""From a config to the programs of its run, on shapes alone."""

import jax
import numpy as np
import pytest
from helpers import refused

from configs import common
from experiments.accelerators import plan, programs
from fedjax_pfl.core.target import compiling_for, target_memory
from fedjax_pfl.data import Shape
from fedjax_pfl.data.datasets import PREPARED
from fedjax_pfl.federated.chunking import device_memory, evaluation_chunk
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.views import final_views


def config(name, **changes):
  return {**common.load(name).to_dict(), **changes}


@pytest.fixture
def nothing_prepared(tmp_path, monkeypatch):
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))


def test_a_data_set_that_is_there_is_that_of_a_run():
  settings = common.load('digits:fedbabu', quick=True).to_dict()
  own, run = plan.make_plan(settings), build_experiment(settings)
  assert own.data_id == run.data_id and not own.dataset.note
  assert own.cohort_size == run.cohort_size


def test_a_data_set_that_is_not_prepared(nothing_prepared):
  own = plan.make_plan(config('fedbabu_cifar10'))
  assert own.train.x.shape == (50_000, 32, 32, 3)
  assert own.train.index.shape == (100, 500)
  assert own.test.index.shape == (100, 100)
  assert own.dataset.note == (
    'cifar10 is not prepared: (50000, 10000) balanced labels stand in.'
  )


def test_images_are_stored_as_the_platform_stores_them(nothing_prepared):
  with compiling_for('tpu'):
    own = plan.make_plan(config('fedbabu_cifar10'))
  (pool,) = jax.tree.leaves(own.train.x)
  assert own.train.x.shape == (50_000, 32, 32, 3)
  assert pool.shape == (50_000, 3072)


def test_every_data_set_that_can_be_prepared_has_a_size():
  for name, shape in PREPARED.items():
    made = plan.stand_in(name, Shape(*shape))
    assert np.bincount(made.train.y).min() > 0
  message = refused(plan.stand_in, 'folder', Shape((8, 8, 1), 2))
  assert 'cifar10' in message


def test_clients_on_the_host_are_refused():
  message = refused(
    plan.make_plan, config('digits:fedbabu', clients_placement='host')
  )
  assert '--config.clients_placement=device' in message


def test_programs_of_two_stages():
  own = plan.make_plan(common.load('digits:lg_fedavg', quick=True).to_dict())
  found = [*programs.make_programs(own, jax.devices()[:1])]
  assert [(one.stage, one.kind) for one in found] == [
    ('fedavg', 'round'),
    ('lg_fedavg', 'begin'),
    ('lg_fedavg', 'round'),
    ('lg_fedavg', 'evaluation'),
  ]
  first, _, second, evaluation = found
  assert (first.calls, second.calls) == tuple(s.rounds for s in own.stages)
  assert (first.chunk, first.batch) == (1, 20)  # one client at a time on a CPU
  # 10 clients in a block, one after the other.
  assert evaluation.calls == 1 and evaluation.chunk == 1


def test_the_last_evaluation_is_that_of_a_run():
  settings = common.load('digits:fedbabu', quick=True).to_dict()
  settings['finetune']['epochs'] = (1, 2)
  settings['views'] = ('initial', 'templates_cosine', 'finetuned')
  own = plan.make_plan({**settings, 'validation_fraction': 0.2})
  *_, evaluation = programs.make_programs(own, jax.devices()[:1])
  scores, _ = jax.eval_shape(
    evaluation.function, *evaluation.arguments.values()
  )
  # Validation chooses among all fine-tunings.
  assert {*scores} == {*final_views(own.settings)}
  assert 'finetuned_1' in scores


def test_auto_fills_the_memory_of_the_device_that_is_compiled_for():
  own = plan.make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  (device,) = jax.devices()[:1]
  with compiling_for('gpu', 2**30):
    assert target_memory() == 2**30
    roomy, *_ = programs.make_programs(own, [device])
    (first, *_) = own.stages
    free = device_memory(first.algorithm, *roomy.arguments.values())
  assert roomy.chunk == own.cohort_size
  resident = sum(
    leaf.size * leaf.dtype.itemsize
    for part in ('server', 'clients', 'data')
    for leaf in jax.tree.leaves(roomy.arguments[part])
  )
  assert free.free == 2**30 - resident
  with compiling_for('gpu', resident + free.per_client):
    tight, *_ = programs.make_programs(own, [device])
  assert tight.chunk == 1
  assert target_memory() is None


def test_auto_is_one_client_where_one_program_runs_all():
  own = plan.make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  with compiling_for('tpu', 2**34):
    found = [*programs.make_programs(own, jax.devices()[:1])]
    (first, *_) = own.stages
    given = found[0].arguments.values()
    assert device_memory(first.algorithm, *given) is None
  assert {one.kind: one.chunk for one in found} == {
    'round': 1,
    'evaluation': 1,
  }


@pytest.mark.parametrize(
  ('platform', 'setting', 'chunk'),
  [('gpu', 'auto', 20), ('gpu', 4, 4), ('gpu', 99, 20), ('tpu', 4, 1)],
)
def test_clients_evaluated_side_by_side(platform, setting, chunk):
  with compiling_for(platform):
    assert evaluation_chunk(setting, 20) == chunk
