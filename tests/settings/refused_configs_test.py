"""What is wrong with a config is told before anything is compiled."""

import math

import pytest
from helpers import refused
from small_runs import settings_of

from configs import fedbabu_cifar10
from fedjax_pfl.analysis.export import choose
from fedjax_pfl.settings import flat_config, parse_config
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.outline import outline

BANDED = {'sampling': 'cyclic', 'dp__bands': 5, 'dp__clip': 1.0}
BANDED |= {'dp__noise_multiplier': 1.0, 'dp__delta': 1e-3}
# Found by the outline: in the config, by tracing the method on shapes.
NO_DATA_NEEDED = [
  ({'finetune__trainable': 'haed'}, '(did you mean head?)'),
  ({'model': 'convnet4'}, 'got (8, 8, 1), expected at least 16x16 pixels'),
  ({'preprocessing': 'fedconcat'}, "dataset: got 'digits', expected an image"),
  ({'views': ('initial', 'finetune')}, '(did you mean finetuned?)'),
  ({'views': ('finetuned_5',)}, 'fine-tuning that stops at other epochs'),
  ({'eval_views': ('global',)}, "got 'global', expected a view of this method"),
  ({'hp__mu': 0.1}, "hp: got 'mu', expected a hyperparameter of fedbabu"),
  (
    {'algorithm': 'lg_fedavg', 'hp__train_fedavg': False},
    'the directory of a FedAvg run',
  ),
  (
    {'algorithm': 'lg_fedavg', 'hp__protocol': 'released', 'eval_views': ()},
    'eval_views: got (), expected initial among them',
  ),
  ({'hp__trainable': 1}, "of the kind of its default, 'body'"),
  (
    {'finetune__trainable': 'conv1+bn4'},
    "finetune.trainable: got 'bn4', expected a part",
  ),
  ({'algorithm': 'apfl', 'hp__alpha': [0.5]}, 'Choices: float | None.'),
  ({'algorithm': 'fedrep', 'hp__head_epochs': True}, 'int | None.'),
  (
    {'algorithm': 'superfed', 'hp__grid': ('a',)},
    'Choices: tuple[float, ...].',
  ),
  ({'algorithm': 'fedprox', 'hp__mu': math.nan}, 'hp.mu: got nan, expected'),
  ({'algorithm': 'pfedme', 'hp__inner_steps': 10**7}, 'up to 1000000'),
  (
    {'algorithm': 'ditto', 'local_steps': 3},
    'local_steps: got 3, expected 0 with ditto, whose rounds are epochs',
  ),
  ({'algorithm': 'ditto', 'hp__lam': -1.0}, 'hp.lam: got -1.0, expected'),
  (
    {'algorithm': 'fedper', 'eval_global_model': True},
    'eval_global_model: got True, expected False for fedper: its server holds',
  ),
  (
    {'algorithm': 'local_only', 'unseen_clients': 2, 'views': ('personal',)}
    | {'eval_views': ()},
    'unseen_clients: got 2, expected 0 for local_only: its server sends ',
  ),
  (
    {'algorithm': 'fedproto', 'compression': 'topk', 'eval_views': ()}
    | {'views': ('personal',)},
    "compression: got 'topk with fedproto', expected none with this method",
  ),
  (
    {'dp__clip': 1.0, 'dp__noise_multiplier': 1.0, 'dp__delta': 1e-3}
    | {'dp__clip_quantile': 0.5},
    'dp.clip_quantile: got 0.5, expected 0 with 5 clients a round and noise ',
  ),
  ({'sampling': 'cyclic'}, 'dp.bands: got 1, expected above 1 with sampling'),
  (BANDED | {'sampling': 'poisson'}, 'dp.bands: got 5, expected above 1 with'),
  (
    BANDED | {'rounds': 4},
    'a divisor of 20, the clients, at most 4, the rounds',
  ),
  (
    BANDED | {'num_clients': 12},
    'got 5, expected a divisor of 12, the clients',
  ),
  (BANDED | {'client_fraction': 0.3}, 'and 3.33333, 1 / client_fraction: '),
  ({'algorithm': 'ditto', 'hp__anchor': 'local'}, 'without hp.protocol=rel'),
  ({'server_learning_rate': 0.1}, 'got 0.1, expected 1.0 without server_opt'),
  ({'client_speeds': 'x', 'speed_sigma': 2.0}, 'expected 1.0 without client_s'),
  ({'compression': 'topk', 'compression_levels': 3}, '7 without compression=q'),
  (
    {'attackers': 0.3, 'attack': 'alie', 'aggregation': 'krum'}
    | {'client_fraction': 0.2},
    'attackers: got 0.3, expected at most 1 liars among 4 changes of a round',
  ),
  (
    {'aggregation': 'median', 'aggregation_before': ('bucketing',)}
    | {'aggregation_bears': 0.3, 'client_fraction': 0.5},
    'at most 2 liars among 5 changes of a round, not 3: a rule bears less than',
  ),
  ({'aggregation': 'caf'}, 'bears: got 0.0, expected above 0 with caf: what '),
  (
    {'attackers': 0.2, 'attack': 'mimic', 'sampling': 'poisson'},
    "attack: got 'mimic', expected none with sampling=poisson: nobody knows ho",
  ),
  (
    {'attack': 'sign_flip', 'attackers': 0.2, 'algorithm': 'local_only'}
    | {'views': ('personal',), 'eval_views': ()},
    "sign_flip with local_only', expected none with this method: its clients",
  ),
  (
    {'aggregation': 'median', 'algorithm': 'scaffold'},
    'uniform or examples with this method: its server does more with single',
  ),
  (
    {'aggregation': 'qffl', 'compression': 'topk'},
    "aggregation: got 'qffl', expected uniform with compression: losses are se",
  ),
  (
    {'aggregation': 'term', 'algorithm': 'fedrep', 'eval_views': ()},
    'method: its clients download no whole model that has a loss',
  ),
  (
    {'attack': 'backdoor', 'attackers': 0.2, 'attack_trigger': 9},
    'attack_trigger: got 9, expected at most 8, a side of images',
  ),
  (
    {'attack': 'backdoor', 'attackers': 0.2, 'attack_target': 10},
    'attack_target: got 10, expected a class, 0 to 9',
  ),
  ({'attack': 'alie'}, 'attackers: got 0.0, expected above 0 with an attack, '),
  ({'attackers': 0.2}, 'got 0.2, expected 0.0 without attack: alone it does'),
  (
    {'attack': 'alie', 'attacker_ids': (3, 20)},
    'attacker_ids: got (3, 20), expected ids of clients that take ',
  ),
  (
    {'attack': 'best_alie', 'attackers': 0.2},
    'best_alie against a robust aggregation: of a mean no strength is the',
  ),
  (
    {'aggregation': 'monna', 'aggregation_bears': 0.2},
    'another rule, or client_fraction=1 and client 0, whom it trusts',
  ),
  (
    {'aggregation': 'mda', 'aggregation_bears': 0.4, 'num_clients': 40}
    | {'client_fraction': 1.0, 'shards_per_client': 5},
    'mda looks at 62,852,101,650 choices of 24 among 40, more than 100,000',
  ),
  ({'devices': 2, 'debug': True}, "got '2 devices or processes, with debug"),
]
# Found in the start, and in labels alone: more are in data/partition_test.py.
BEFORE_COMPILING = [
  ({'init_from': 'nowhere'}, "run: got 'nowhere', expected a run directory"),
  (
    {'num_clients': 15, 'shards_per_client': 3},
    'shards_per_client: got 3, expected a positive multiple of 2: 15 clients',
  ),
  (
    {'num_clients': 1, 'shards_per_client': 2},
    'needs a multiple of 10 shards in all, partition=iid takes any num_clients',
  ),
  (
    {'validation_fraction': 0.995},
    'it takes all 73 training examples of client 0 (20 of 20 clients)',
  ),
  ({'batch_size': 1443}, 'batch_size: got 1443, expected at most 1442'),
]


@pytest.mark.parametrize(
  ('build', 'changes', 'words'),
  [(outline, *case) for case in NO_DATA_NEEDED]
  + [(build_experiment, *case) for case in BEFORE_COMPILING],
)
def test_the_config_is_refused_before_anything_is_compiled(
  compiled, build, changes, words
):
  said = []
  settings = settings_of(**changes)
  assert words in refused(build, settings, said.append)
  assert not said and not compiled


def test_a_part_may_be_of_some_settings_of_a_sweep_or_of_a_stored_run():
  slow = {'client_speeds': 'lognormal', 'late_clients': 'partial'}
  flats = [
    flat_config(parse_config(settings_of(**slow, deadline=deadline)))
    for deadline in (0, 20)
  ]
  check_parts(flats)
  assert "late_clients: got 'partial'" in refused(check_parts, flats[:1])


def test_whole_batches_that_no_tests_of_a_client_fill(compiled):
  settings = settings_of(scoring='whole_batches')
  message = refused(build_experiment, settings)
  assert "scoring: got 'whole_batches with a client of 16 tests'" in message
  assert set(compiled) <= {'jit(stage)', 'jit(convert_element_type)'}
  build_experiment({**settings, 'batch_size': 16})


def test_data_that_are_not_there(tmp_path, compiled):
  place = {'data_dir': str(tmp_path)}
  message = refused(build_experiment, settings_of(fedbabu_cifar10, **place))
  assert f'which {tmp_path / "cifar10"} does not hold' in message
  assert 'Choices: digits, synthetic' in message
  assert not compiled


def test_an_unseen_client_has_no_model_to_export():
  """The run keeps no state of it."""
  changes = {'num_clients': 10, 'unseen_clients': 3}
  settings = parse_config(settings_of(arg='fedavg', **changes))
  assert choose(settings, {}, '6', '').client == 6
  words = "client: got '7', expected a client of the run, 0 to 6, or server"
  assert words in refused(choose, settings, {}, '7', '')
