"""What is wrong with a config is told before anything is compiled."""

import math

import pytest
from helpers import refused
from small_runs import settings_of

from configs import fedbabu_cifar10
from fedjax_pfl.analysis.export import choose
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.keys import evaluation_key, training_key

# Found in the config, by tracing the method on shapes: before any data.
NO_DATA_NEEDED = [
  ({'algorithm': 'fedbabo'}, '(did you mean fedbabu?)'),
  ({'finetune__trainable': 'haed'}, '(did you mean head?)'),
  ({'client_fraction': 1.5}, 'a fraction above 0 and up to 1'),
  ({'model': 'convnet4'}, 'got (8, 8, 1), expected at least 16x16 pixels'),
  (
    {'preprocessing': 'fedconcat'},
    "dataset: got 'digits', expected an image set with a recipe for "
    'preprocessing=fedconcat. Choices: cifar10, cifar100, svhn_cropped, ',
  ),
  ({'views': ('initial', 'finetune')}, '(did you mean finetuned?)'),
  ({'views': ('finetuned_5',)}, 'fine-tuning that stops at other epochs'),
  ({'eval_views': ('global',)}, "got 'global', expected a view of this method"),
  ({'hp__mu': 0.1}, "hp: got 'mu', expected a hyperparameter of fedbabu"),
  ({'algorithm': 'lg_fedavg', 'hp__train_fedavg': False}, 'without a FedAvg'),
  (
    {
      'algorithm': 'lg_fedavg',
      'hp__protocol': 'released',
      'eval_views': ('finetuned',),
    },
    "eval_views: got ('finetuned',), expected initial among them: of it the "
    'clients of lg_fedavg keep the models of their best rounds. Choices: '
    'eval_views=finetuned,initial',
  ),
  ({'init_from': 'nowhere'}, "run: got 'nowhere', expected a run directory"),
  ({'hp__trainable': 1}, "of the kind of its default, 'body'"),
  ({'hp__trainable': 'conv1+bn4'}, "hp.trainable: got 'bn4', expected a part"),
  (
    {'finetune__trainable': 'conv1+bn4'},
    "finetune.trainable: got 'bn4', expected a part",
  ),
  (
    {'algorithm': 'per_fedavg', 'hp__beta': 'lr'},
    "hp.beta: got 'lr', expected a value of the kind of its default, None. "
    'Choices: float | None.',
  ),
  ({'algorithm': 'apfl', 'hp__alpha': [0.5]}, 'Choices: float | None.'),
  ({'algorithm': 'fedrep', 'hp__head_epochs': True}, 'int | None.'),
  (
    {'algorithm': 'superfed', 'hp__grid': ('a',)},
    'Choices: tuple[float, ...].',
  ),
  ({'algorithm': 'fedprox', 'hp__mu': math.nan}, 'hp.mu: got nan, expected'),
  ({'algorithm': 'fedprox', 'hp__mu': 10**30}, 'what 32 bits hold'),
  ({'algorithm': 'pfedme', 'hp__inner_steps': 10**7}, 'up to 1000000'),
  ({'algorithm': 'ditto', 'hp__lam': -1.0}, 'hp.lam: got -1.0, expected'),
  (
    {'algorithm': 'fedper', 'eval_global_model': True},
    'eval_global_model: got True, expected False for fedper: its server holds '
    'no whole model',
  ),
  (
    {
      'algorithm': 'local_only',
      'unseen_clients': 2,
      'views': ('personal',),
      'eval_views': (),
    },
    'unseen_clients: got 2, expected 0 for local_only: its server sends '
    'nothing, so that a client who comes later would train alone',
  ),
]
# Found in the labels alone.
PARTITIONS = [
  (
    {'num_clients': 15, 'shards_per_client': 3},
    'shards_per_client: got 3, expected a positive multiple of 2: 15 clients '
    'x shards must be a multiple of 10 classes, all cut alike. '
    'Choices: 2, 4, 6',
  ),
  (
    {'num_clients': 400, 'shards_per_client': 10},
    'got 400, expected from 1 to 355, so that each can have an example '
    '(1442 for training, 355 for testing)',
  ),
  (
    {'partition': 'unbalanced', 'num_clients': 22, 'shards_per_client': 10},
    'group_size: got 10, expected a divisor of the 22 clients. Choices: 1, 2',
  ),
  (
    {'partition': 'unbalanced', 'size_step': 200},
    'expected from 0 to 144.2: the smallest clients have 72.1 - 0.5 x',
  ),
  (
    {
      'test_partition': 'independent',
      'test_shards_per_client': 3,
      'num_clients': 15,
      'shards_per_client': 2,
    },
    'test_shards_per_client: got 3, expected a positive multiple of 2',
  ),
  (
    {'max_train_examples': 15, 'partition': 'iid'},
    'a data set that was shrunk without fewer clients',
  ),
  (
    {'validation_fraction': 0.995},
    'it takes all 72 training examples of client 0 (20 of 20 clients)',
  ),
  ({'batch_size': 1443}, 'batch_size: got 1443, expected at most 1442'),
  ({'finetune__batch_size': 10**9}, 'finetune.batch_size: got 1000000000'),
  ({'partition': 'classes', 'num_clients': 4}, 'none holds class 5'),
]


@pytest.mark.parametrize(('changes', 'words'), NO_DATA_NEEDED + PARTITIONS)
def test_the_config_is_refused_before_anything_is_compiled(
  compiled, changes, words
):
  said = []
  settings = settings_of(**changes)
  assert words in refused(build_experiment, settings, said.append)
  assert not said and not compiled


def test_whole_batches_that_no_tests_of_a_client_fill(compiled):
  settings = settings_of(scoring='whole_batches')
  message = refused(build_experiment, settings)
  got = "got 'whole_batches with a client of 17 tests'"
  assert f'scoring: {got}' in message
  assert 'at least one whole batch, of 20 tests, for each client' in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}
  build_experiment({**settings, 'batch_size': 17})


def test_data_that_are_not_there(tmp_path, compiled):
  """A typing error is told before."""
  place = {'data_dir': str(tmp_path)}
  message = refused(build_experiment, settings_of(fedbabu_cifar10, **place))
  assert f'which {tmp_path / "cifar10"} does not hold' in message
  assert 'Choices: digits, synthetic' in message
  assert '--config.data_dir=' in message
  assert not compiled
  settings = settings_of(fedbabu_cifar10, **place, eval_views=('inital',))
  assert '(did you mean initial?)' in refused(build_experiment, settings)


def test_zero_changes_no_key():
  plain, zero, other, failing = (
    parse_config(settings_of(arg='fedavg', **changes))
    for changes in (
      {},
      {'unseen_clients': 0, 'dropout_rate': 0.0},
      {'unseen_clients': 2},
      {'dropout_rate': 0.1},
    )
  )
  keys = [training_key(one, 'data') for one in (plain, zero, other, failing)]
  assert keys[0] == keys[1] and len(set(keys)) == 3
  assert len({evaluation_key(one) for one in (plain, zero, other)}) == 1


def test_an_unseen_client_has_no_model_to_export():
  """The run keeps no state of it."""
  changes = {'num_clients': 10, 'unseen_clients': 3}
  settings = parse_config(settings_of(arg='fedavg', **changes))
  assert choose(settings, {}, '6', '').client == 6
  words = "client: got '7', expected a client of the run, 0 to 6, or server"
  assert words in refused(choose, settings, {}, '7', '')
