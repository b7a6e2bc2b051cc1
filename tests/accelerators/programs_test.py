"""From a config to the programs of its run, on shapes alone."""

import jax
import pytest
import simulated_devices
from helpers import ALGORITHMS, refused

from configs import common
from experiments.accelerators import programs
from fedjax_pfl.core.target import compiling_for, target_memory
from fedjax_pfl.data.images import Shape
from fedjax_pfl.federated.chunking import client_bytes
from fedjax_pfl.training.build_data import stand_in

pytestmark = pytest.mark.usefixtures('quick_compiler')


def config(name, **changes):
  return {**common.load(name, quick=True).to_dict(), **changes}


def programs_of(own):
  return [*programs.make_programs(own, jax.devices()[:1])]


def test_a_method_with_two_stages():
  own = programs_of(programs.make_plan(config('digits:lg_fedavg')))
  names = ['fedavg round', 'lg_fedavg round', 'lg_fedavg evaluation']
  assert [one.name for one in own] == names


def test_a_data_set_that_is_not_prepared(tmp_path, monkeypatch):
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  with compiling_for('tpu'):
    own = programs.make_plan(common.load('fedbabu_cifar10').to_dict())
  assert own.train.index.shape == (100, 500)
  assert own.test.index.shape == (100, 100)
  assert own.dataset.note == (
    'cifar10 is not prepared: (50000, 10000) balanced labels stand in.'
  )


def test_what_has_no_programs_is_refused():
  message = refused(stand_in, 'folder', Shape((8, 8, 1), 2))
  assert 'cifar10' in message
  for name, value, only in (
    ('clients_placement', 'host', 'device'),
    ('buffer_size', 2, 0),
  ):
    slow = {'client_speeds': 'lognormal'} if only == 0 else {}
    own = config('digits:fedbabu', **{name: value}, **slow)
    assert f'--config.{name}={only}' in refused(programs.make_plan, own)


def test_a_model_over_more_devices_than_there_are():
  own = programs.make_plan(config('digits:fedbabu', model_devices=2))
  assert own.settings.system.model_devices == 2
  assert 'that divides the 1 devices' in refused(programs_of, own)


def test_the_last_evaluation_is_that_of_a_run():
  settings = config('digits:fedbabu', validation_fraction=0.2)
  settings['finetune']['epochs'] = (1, 2)
  settings['views'] = ('initial', 'templates_cosine', 'finetuned')
  own = programs.make_plan(settings)
  *_, evaluation = programs_of(own)
  arguments = evaluation.arguments.values()
  scores, _ = jax.eval_shape(evaluation.function, *arguments)
  # Validation chooses among all fine-tunings.
  assert {*scores} == {*own.settings.final_views}
  assert 'finetuned_1' in scores


def test_auto_fills_the_memory_of_the_device_that_is_compiled_for():
  own = programs.make_plan(config('digits:fedbabu'))
  algorithm = own.stages[0].algorithm
  with compiling_for('gpu', 2**30):
    assert target_memory() == 2**30
    roomy, *_ = programs_of(own)
    need = client_bytes(algorithm, *roomy.arguments.values())
  assert roomy.chunk == own.cohort_size
  resident = sum(
    leaf.size * leaf.dtype.itemsize
    for part in ('server', 'clients', 'data')
    for leaf in jax.tree.leaves(roomy.arguments[part])
  )
  with compiling_for('gpu', resident + need):
    tight, *_ = programs_of(own)
  assert tight.chunk == 1
  # One client where one program runs all.
  with compiling_for('tpu', 2**34):
    found = programs_of(own)
  assert [one.chunk for one in found] == [1, 1]


# ---- every method lowers for a TPU and for CUDA


@pytest.mark.long
@pytest.mark.parametrize('platform', ['tpu', 'cuda'])
def test_every_method(platform):
  names = [f'digits:{method}' for method in ALGORITHMS]
  found = simulated_devices.call(1, 'lower.convolutions', platform, *names)
  for method in names:
    own = [name for name in found if name.startswith(f'{method} ')]
    assert {name.split()[-1] for name in own} == {'round', 'evaluation'}, own
  # On an accelerator convolutions are the compiler's own.
  assert found['digits:lg_fedavg fedavg round'] > 0
