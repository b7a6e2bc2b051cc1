"""What is wrong with a config is told before anything is compiled."""

import math
import re

import flax.linen as nn
import jax
import numpy as np
import pytest
from compiler import counting
from helpers import make_data, make_task

from configs import common, fedavg_digits, fedbabu_cifar10, fedbabu_digits
from fedjax_pfl import algorithm, experiment
from fedjax_pfl.data import load_source, transforms
from fedjax_pfl.errors import BadInput
from fedjax_pfl.experiment import (
  build,
  build_data,
  build_stages,
  build_task,
  peek_shape,
)
from fedjax_pfl.models.task import task_from_module
from fedjax_pfl.types import ClientData


@pytest.fixture
def compiled():
  """Return a list that grows by the name of every program compiled."""
  with counting() as names:
    yield names


def make_settings(config=fedbabu_digits, arg='', **changes):
  settings = config.get_config(arg).to_dict()
  for name, value in changes.items():
    group, _, field = name.partition('__')
    if field:
      settings[group][field] = value
    else:
      settings[name] = value
  return settings


def refused(call):
  with pytest.raises(BadInput) as caught:
    call()
  message = str(caught.value)
  for part in (': got ', 'expected ', '. Likely cause: '):
    assert part in message, message
  return message


# Found in the config, by tracing the method on shapes: before any data.
NO_DATA_NEEDED = [
  ({'algorithm': 'fedbabo'}, '(did you mean fedbabu?)'),
  ({'dataset': 'digit'}, '(did you mean digits?)'),
  ({'model': 'convnet5'}, 'Choices: convnet3, convnet4, mobilenet'),
  ({'shard': 5}, '(did you mean shards?)'),
  ({'finetune__part': 'haed'}, '(did you mean head?)'),
  ({'finetune__epoch': 5}, '(did you mean finetune.epochs?)'),
  ({'fraction': 1.5}, 'a fraction above 0 and up to 1'),
  ({'model': 'convnet4'}, 'got (8, 8, 1), expected at least 16x16 pixels'),
  (
    {'inputs': 'fedconcat'},
    "dataset: got 'digits', expected an image set that inputs=fedconcat has a "
    'recipe for. Choices: cifar10, cifar100, svhn_cropped, fashion_mnist, ',
  ),
  ({'views': ('initial', 'finetune')}, '(did you mean finetuned?)'),
  ({'views': ('finetuned_5',)}, 'fine-tuning that stops at other epochs'),
  ({'eval_views': ('global',)}, "got 'global', expected a view of this method"),
  ({'hp__mu': 0.1}, "hp: got 'mu', expected a hyperparameter of fedbabu"),
  ({'hp__update_part': 'haed'}, '(did you mean head?)'),
  (
    {'algorithm': 'lg_fedavg', 'hp__train_fedavg': False},
    'Likely cause: LG-FedAvg without a FedAvg run',
  ),
  (
    {'algorithm': 'lg_fedavg', 'hp__learning_rate': 0.0},
    'hp.learning_rate: got 0.0, expected a learning rate above 0',
  ),
  ({'start': 'nowhere'}, "run: got 'nowhere', expected a run directory"),
  ({'hp__update_part': 1}, "of the kind of its default, 'body'"),
  (
    {'hp__update_part': 'conv1+bn4'},
    "hp.update_part: got 'bn4', expected a part of the model, or names of its "
    "layers joined by '+'. Choices: full, body, head, bn1, bn2, bn3, conv1, "
    'conv2, conv3 (did you mean bn3?)',
  ),
  (
    {'finetune__part': 'conv1+bn4'},
    "finetune.part: got 'bn4', expected a part",
  ),
  (
    {'algorithm': 'fedavg', 'hp__head_lr_ratio': -1},
    'hp.head_lr_ratio: got -1, expected a number, 0 or more',
  ),
  ({'algorithm': 'per_fedavg', 'hp__beta': -0.1}, 'a rate above 0, or None'),
  (
    {'algorithm': 'per_fedavg', 'hp__beta': 'lr'},
    "hp.beta: got 'lr', expected a value of the kind of its default, None. "
    'Choices: a number, None.',
  ),
  ({'algorithm': 'apfl', 'hp__alpha': [0.5]}, 'Choices: a number, None.'),
  ({'algorithm': 'fedrep', 'hp__head_epochs': True}, 'a whole number, None.'),
  ({'algorithm': 'superfed', 'hp__grid': ('a',)}, 'a list, each a number.'),
  ({'algorithm': 'fedprox', 'hp__mu': math.nan}, 'hp.mu: got nan, expected'),
  ({'algorithm': 'fedprox', 'hp__mu': 10**30}, 'what 32 bits hold'),
  ({'algorithm': 'pfedme', 'hp__inner_steps': 10**7}, 'up to 1000000'),
  ({'algorithm': 'ditto', 'hp__protocol': 'papers'}, '(did you mean paper?)'),
  ({'algorithm': 'ditto', 'hp__anchor': 'glob'}, '(did you mean global?)'),
  ({'algorithm': 'ditto', 'hp__personal_epochs': 0}, 'epochs, 1 or more'),
  ({'algorithm': 'ditto', 'hp__lam': -1.0}, 'hp.lam: got -1.0, expected'),
  ({'algorithm': 'ditto', 'hp__personal_momentum': 1.0}, 'to below 1'),
  ({'algorithm': 'fedconcat', 'hp__classifier_decay': -1.0}, '0 or more'),
  (
    {'algorithm': 'fedper', 'global_test': True},
    'global_test: got True, expected False for fedper: its server holds no '
    'whole model that could be judged on the whole test set. Choices: '
    'global_test=False',
  ),
]


@pytest.mark.parametrize(('changes', 'words'), NO_DATA_NEEDED)
def test_the_config_is_refused_before_data_are_read(compiled, changes, words):
  said = []
  message = refused(lambda: build(make_settings(**changes), said.append))
  assert words in message
  assert not said and not compiled


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {'clients': 15, 'shards': 3},
      'shards: got 3, expected a positive multiple of 2: 15 clients x shards '
      'must be a multiple of 10 classes, so that every class is cut into '
      'equally many. Choices: 2, 4, 6',
    ),
    (
      {'clients': 400, 'shards': 10},
      'got 400, expected from 1 to 355, so that each can have an example of '
      'both splits (1442 for training, 355 for testing)',
    ),
    (
      {'partition': 'unbalanced', 'clients': 22, 'shards': 10},
      'group_size: got 10, expected a divisor of the 22 clients. Choices: 1, 2',
    ),
    (
      {'partition': 'unbalanced', 'size_step': 200},
      'expected from 0 to 144.2: the smallest clients have 72.1 - 0.5 x',
    ),
    (
      {
        'test_partition': 'independent',
        'test_shards': 3,
        'clients': 15,
        'shards': 2,
      },
      'test_shards: got 3, expected a positive multiple of 2: 15 clients',
    ),
    (
      {'examples': 15, 'partition': 'iid'},
      'a data set that was shrunk without lowering the clients',
    ),
    ({'batch_size': 1443}, 'batch_size: got 1443, expected at most 1442'),
    ({'finetune__batch_size': 10**9}, 'finetune.batch_size: got 1000000000'),
    (
      {'partition': 'classes', 'clients': 4},
      'nobody holds class 5',
    ),
  ],
)
def test_the_partition_is_refused_before_anything_is_compiled(
  compiled, changes, words
):
  said = []
  message = refused(lambda: build(make_settings(**changes), said.append))
  assert words in message
  assert not said and not compiled


def test_whole_batches_that_no_tests_of_a_client_fill(compiled):
  settings = make_settings(scoring='whole_batches')
  message = refused(lambda: build(settings))
  got = "got 'whole_batches with a client of 17 tests'"
  assert f'scoring: {got}' in message
  assert 'at least one whole batch, of 20 tests, for each client' in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}
  build({**settings, 'batch_size': 17})


def test_shapes_are_enough_to_know_the_method(compiled):
  experiment = build(make_settings())
  # Moving arrays to the device goes by this name; nothing else is compiled.
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}
  assert experiment.rounds == 16 and experiment.cohort_size == 5


def test_data_that_are_not_there(tmp_path, compiled):
  settings = make_settings(fedbabu_cifar10, data_dir=str(tmp_path))
  message = refused(lambda: build(settings))
  assert f'which {tmp_path / "cifar10"} does not hold' in message
  assert 'Choices: digits, synthetic' in message
  assert '--config.data_dir=' in message
  assert not compiled


def test_a_typing_error_is_told_before_absent_data(tmp_path):
  settings = make_settings(
    fedbabu_cifar10, data_dir=str(tmp_path), eval_views=('inital',)
  )
  assert '(did you mean initial?)' in refused(lambda: build(settings))


def test_quick_has_a_stand_in_and_says_so(tmp_path):
  said = []
  settings = make_settings(fedbabu_cifar10, 'quick', data_dir=str(tmp_path))
  experiment = build(settings, said.append)
  assert 'synthetic images of its shape stand in' in said[0]
  assert 'say nothing about cifar10' in said[0]
  assert experiment.train.x.shape == (1000, 32, 32, 3)
  assert 'synthetic' in experiment.source.name


def test_the_user_is_told_what_the_clients_hold():
  said = []
  build(make_settings(), said.append)
  assert said[0].startswith('digits, training: 20 clients, 1,442 examples')
  assert said[1].startswith('digits, testing: 20 clients, 355 examples')


PARTS = [
  {'partition': 'iid'},
  {'partition': 'dirichlet', 'beta': 0.5},
  {'partition': 'unbalanced', 'size_step': 5.0},
  {'test_partition': 'whole'},
  {'test_partition': 'independent', 'test_shards': 10},
  {'test_partition': 'iid'},
]


def test_the_user_is_told_padding_and_fingerprint_of_every_partition():
  heard = []
  for changes in [{}, *PARTS]:
    said = []
    experiment = build(make_settings(**changes), said.append)
    assert experiment.test.count.shape == (20,)
    for split, line in zip(('training', 'testing'), said, strict=True):
      assert re.match(
        rf'digits, {split}: 20 clients, [\d,]+ examples, .*; '
        r'padding \d+\.\d %; partition [0-9a-f]{12}$',
        line,
      )
    heard.append(said)
  assert len({training for training, _ in heard}) == 4
  assert len({testing for _, testing in heard}) == 7 - 1  # two are iid
  assert len({tuple(said) for said in heard}) == 7


def test_clients_that_are_tested_on_a_split_of_their_training_images():
  said = []
  experiment = build(make_settings(test_partition='split'), said.append)
  train, test = experiment.train, experiment.test
  assert said[1].startswith(
    'digits, testing, on training images kept apart: 20 clients, '
  )
  # One pool, on the device once.
  assert test.x is train.x and test.y is train.y
  assert int(train.count.sum() + test.count.sum()) == len(train.y) == 1442
  rows = [
    {*np.asarray(row[:size]).tolist()}
    for data in (train, test)
    for row, size in zip(data.index, data.count, strict=True)
  ]
  assert len(set().union(*rows)) == 1442


def test_the_user_is_told_of_clients_that_lack_examples():
  said = []
  experiment = build(
    make_settings(partition='dirichlet', beta=0.02), said.append
  )
  no_train, no_test = (
    np.asarray(data.count) == 0 for data in (experiment.train, experiment.test)
  )
  assert 0 < no_train.sum() < no_test.sum() < 20
  assert said[2:] == [
    f'Clients without training examples: {no_train.sum()} of 20; without test '
    f'examples: {no_test.sum()}; left out of all means: {no_test.sum()}. They '
    'are kept and counted.'
  ]
  assert (no_test | no_train).sum() == no_test.sum()


def test_the_argument_after_the_colon():
  message = refused(lambda: common.base('quik'))
  assert "config argument: got 'quik'" in message
  assert 'Choices: quick (did you mean quick?)' in message


def test_clients_may_adapt_on_half_of_their_tests():
  experiment = build(make_settings())
  assert experiment.judging == (experiment.train, experiment.test)
  settings = {**experiment.settings, 'support': 'test_half'}
  support, query = experiment._replace(settings=settings).judging
  size = int(experiment.test.count[3])
  assert support.count[3] == size // 2
  both = np.r_[support.index[3, : size // 2], query.index[3, : -(-size // 2)]]
  np.testing.assert_array_equal(
    np.sort(both), np.sort(experiment.test.index[3, :size])
  )


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {'batch_size': 71},
      "batch_size: got '71, while 6 of 20 clients have so many examples or "
      "fewer (the smallest has 71)', expected two batches or more",
    ),
    (
      {'clients': 355, 'partition': 'iid', 'batch_size': 4},
      'Choices: a batch_size of at most 3, fewer clients',
    ),
  ],
)
def test_a_client_that_fills_one_batch_is_told_before_compiling(
  compiled, changes, words
):
  changes = {'algorithm': 'per_fedavg', 'views': ('initial',), **changes}
  message = refused(lambda: build(make_settings(**changes)))
  assert words in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}


def test_clients_without_examples_are_no_reason_to_refuse():
  (stage,) = algorithm.load('per_fedavg').build(
    make_task(), algorithm.load('per_fedavg').HParams()
  )
  stage.check(make_data((0, 51, 0, 500)))
  refused(lambda: stage.check(make_data((0, 50, 0, 500))))


def test_hyperparameters_reach_the_method():
  """FedBABU that updates everything uploads what FedAvg uploads."""

  def uploaded(config, **changes):
    settings = make_settings(config, **changes)
    task = build_task(settings, (8, 8, 1), 10)
    method = build_stages(settings, task)[0].algorithm

    def upload(data, key):
      server = method.init_server(key)
      return method.local_update(method.download(server, ()), (), data, key)[1]

    shapes = [(1, 8, 8, 1), (1,), (1,), ()]
    one = ClientData(*(jax.ShapeDtypeStruct(s, 'int32') for s in shapes))
    return jax.eval_shape(upload, one, jax.eval_shape(jax.random.key, 0))

  fedavg = uploaded(fedavg_digits)
  assert uploaded(fedbabu_digits, hp__update_part='full') == fedavg
  assert uploaded(fedbabu_digits)['head'] == {'bias': None, 'kernel': None}


@pytest.mark.long
def test_the_head_begins_as_the_config_says():
  settings = make_settings(head_init='similar', head_bias='zero')
  head = build_task(settings, (8, 8, 1), 10).init(jax.random.key(0))['head']
  norms = np.linalg.norm(head['kernel'], axis=0)  # [Y]
  np.testing.assert_allclose(norms, 1, rtol=1e-5)
  assert not head['bias'].any()


def test_a_server_with_data():
  said = []
  experiment = build(make_settings(server_share=0.05), said.append)
  assert said[-1] == 'server: 72 of the 1,442 training examples'
  refine = experiment.stages[-1].algorithm.refine
  assert refine is not algorithm.as_aggregated


def test_a_server_without_data_costs_nothing():
  said = []
  experiment = build(make_settings(), said.append)
  assert not [line for line in said if line.startswith('server')]
  refine = experiment.stages[-1].algorithm.refine
  assert refine is algorithm.as_aggregated


def test_a_server_whose_share_is_no_example(compiled):
  message = refused(lambda: build(make_settings(server_share=1e-4)))
  assert 'server_share: got 0.0001, expected 0, or at least 1/1442' in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}


def test_views_follow_from_the_epochs_of_finetuning():
  build(make_settings(finetune__epochs=(1, 3), views=('finetuned_1',)))


class Headless(nn.Module):
  """A model whose last layer has another name, or is all that there is."""

  name_of_last: str
  name_of_first: str = 'conv'

  @nn.compact
  def __call__(self, x, mask):
    x = self.features(x, mask)
    return nn.Dense(10, name=self.name_of_last)(x)

  @nn.compact
  def features(self, x, mask):
    del mask
    return x.reshape(x.shape[0], -1)


@pytest.mark.parametrize(
  ('last', 'words'), [('out', '0 of 2 leaves'), ('head', '2 of 2 leaves')]
)
def test_a_head_mask_that_selects_nothing_or_everything(compiled, last, words):
  message = refused(
    lambda: task_from_module(
      Headless(last), image_shape=(8, 8, 1), num_classes=10
    )
  )
  assert f'a head mask that selects {words}' in message
  assert 'expected some but not all' in message
  assert f'{last}/bias, {last}/kernel' in message
  assert 'Is the last layer called "head"?' in message
  assert not compiled


def test_an_algorithm_that_is_not_there():
  message = refused(lambda: algorithm.load('fedavgg'))
  assert '(did you mean fedavg?)' in message


def test_fewer_examples_keep_their_share_of_tests():
  experiment = build(make_settings(examples=500))
  assert len(experiment.source.train.y) == 500
  assert len(experiment.source.test.y) == round(500 / 1442 * 355)
  assert np.asarray(experiment.train.count).sum() <= 500


def test_inputs_of_another_recipe_and_size(monkeypatch):
  changes = {'dataset': 'tiny_imagenet', 'inputs': 'fedconcat', 'quick': True}
  settings = make_settings(fedbabu_cifar10, 'quick', **changes)
  assert peek_shape(settings) == ((32, 32, 3), 200)
  settings['dataset'] = 'digits'
  settings['inputs'] = 'unit'
  assert peek_shape(settings) == ((8, 8, 1), 10)
  settings['model'] = 'convnet3'
  task = build_task(settings, (8, 8, 1), 10)
  assert task.augment is task.normalise  # nothing is augmented
  x = np.full((1, 8, 8, 1), 51, np.uint8)
  np.testing.assert_allclose(task.augment(x, jax.random.key(0)), 0.2)
  found = transforms.find_recipe('digits')._replace(side=4)
  monkeypatch.setattr(experiment, 'find_recipe', lambda *names: found)
  source, train, *_ = build_data(make_settings(), lambda text: None)
  assert train.x.shape == (1442, 4, 4, 1)
  plain = load_source('digits')
  assert source.fingerprint != plain.fingerprint
  # Every pixel of a half is a mean of four to sixteen.
  means = plain.train.x.reshape(-1, 4, 2, 4, 2, 1).mean((2, 4))
  assert abs(means - train.x).mean() < 20
