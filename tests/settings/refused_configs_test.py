"""What is wrong with a config is told before anything is compiled."""

import math

import pytest
from helpers import refused
from small_runs import settings_of

from configs import fedbabu_cifar10
from fedjax_pfl.analysis.chosen_model import owner_of
from fedjax_pfl.settings import flat_config, parse_config
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.outline import outline

BANDED = {'sampling': 'cyclic', 'dp__bands': 5, 'dp__clip': 1.0}
BANDED |= {'dp__noise_multiplier': 1.0, 'dp__delta': 1e-3}
DP = {'dp__clip': 1.0, 'dp__noise_multiplier': 1.0, 'dp__delta': 1e-3}
PERSONAL = {'views': ('personal',), 'eval_views': ()}
LOCAL = {'algorithm': 'local_only', **PERSONAL}
LIES = {'attack': 'alie', 'attackers': 0.3, 'aggregation': 'krum'}
BACKDOOR = {'attack': 'backdoor', 'attackers': 0.2}
MEDIAN = {'aggregation': 'median'}
BUCKETS = MEDIAN | {'aggregation_before': ('bucketing',)}
BUCKETS |= {'aggregation_bears': 0.3}
MIMIC = {'attack': 'mimic', 'attackers': 0.2}
MONNA = {'aggregation': 'monna', 'aggregation_bears': 0.2}
MDA = {'aggregation': 'mda', 'aggregation_bears': 0.4, 'num_clients': 40}
MDA |= {'client_fraction': 1.0, 'shards_per_client': 5}
RELEASED = {'algorithm': 'lg_fedavg', 'hp__protocol': 'released'}
FEDPER = {'algorithm': 'fedper'}
FEDREP = {'algorithm': 'fedrep', 'eval_views': ()}
FEDPROTO = {'algorithm': 'fedproto', **PERSONAL}
CLIENTS_15 = {'num_clients': 15, 'shards_per_client': 3}
# Found by the outline: in the config, by tracing the method on shapes.
NO_DATA_NEEDED = [
  ({'finetune__trainable': 'haed'}, '(did you mean head?)'),
  ({'model': 'convnet4'}, 'got (8, 8, 1), expected at least 16x16 pixels'),
  ({'preprocessing': 'fedconcat'}, "dataset: got 'digits', expected an image"),
  ({'views': ('initial', 'finetune')}, '(did you mean finetuned?)'),
  ({'views': ('finetuned_5',)}, 'fine-tuning that stops at other epochs'),
  ({'eval_views': ('global',)}, "got 'global', expected a view of this method"),
  ({'hp__mu': 0.1}, "hp: got 'mu', expected a hyperparameter of fedbabu"),
  ({'algorithm': 'lg_fedavg', 'hp__train_fedavg': False}, 'of a FedAvg run'),
  (RELEASED | {'eval_views': ()}, 'eval_views: got (), expected initial among'),
  ({'hp__trainable': 1}, "of the kind of its default, 'body'"),
  ({'finetune__trainable': 'conv1+bn4'}, "got 'bn4', expected a part"),
  ({'algorithm': 'apfl', 'hp__alpha': [0.5]}, 'Choices: float | None.'),
  ({'algorithm': 'fedrep', 'hp__head_epochs': True}, 'int | None.'),
  ({'algorithm': 'superfed', 'hp__grid': ('a',)}, 'tuple[float, ...].'),
  ({'algorithm': 'fedprox', 'hp__mu': math.nan}, 'hp.mu: got nan, expected'),
  ({'algorithm': 'pfedme', 'hp__inner_steps': 10**7}, 'up to 1000000'),
  ({'algorithm': 'ditto', 'hp__lam': -1.0}, 'hp.lam: got -1.0, expected'),
  (FEDPER | {'eval_global_model': True}, 'False for fedper: its server holds'),
  (LOCAL | {'unseen_clients': 2}, 'unseen_clients: got 2, expected 0 for'),
  (FEDPROTO | {'compression': 'topk'}, "compression: got 'topk with fedproto'"),
  (DP | {'dp__clip_quantile': 0.5}, 'got 0.5, expected 0 with 5 clients a rou'),
  ({'sampling': 'cyclic'}, 'dp.bands: got 1, expected above 1 with sampling'),
  (BANDED | {'sampling': 'poisson'}, 'dp.bands: got 5, expected above 1 with'),
  (BANDED | {'rounds': 4}, 'of 20, the clients, at most 4, the rounds'),
  (BANDED | {'num_clients': 12}, 'got 5, expected a divisor of 12, the client'),
  (BANDED | {'client_fraction': 0.3}, 'and 3.33333, 1 / client_fraction: '),
  ({'algorithm': 'ditto', 'local_steps': 3}, 'with ditto, whose rounds are ep'),
  ({'algorithm': 'ditto', 'hp__anchor': 'local'}, 'without hp.protocol=rel'),
  ({'server_learning_rate': 0.1}, 'got 0.1, expected 1.0 without server_opt'),
  ({'client_speeds': 'x', 'speed_sigma': 2.0}, 'expected 1.0 without client_s'),
  ({'compression': 'topk', 'compression_levels': 3}, '7 without compression=q'),
  (LIES | {'client_fraction': 0.2}, 'at most 1 liars among 4 changes of a'),
  (BUCKETS | {'client_fraction': 0.5}, 'at most 2 liars among 5 changes of a'),
  ({'aggregation': 'caf'}, 'bears: got 0.0, expected above 0 with caf: what '),
  (MIMIC | {'sampling': 'poisson'}, 'none with sampling=poisson: nobody knows'),
  (LOCAL | {'attack': 'ipm', 'attackers': 0.2}, 'this method: its clients'),
  (MEDIAN | {'algorithm': 'scaffold'}, 'its server does more with single'),
  ({'aggregation': 'qffl', 'compression': 'topk'}, 'uniform with compres'),
  (FEDREP | {'aggregation': 'term'}, 'its clients download no whole model'),
  (BACKDOOR | {'attack_trigger': 9}, 'attack_trigger: got 9, expected at'),
  (BACKDOOR | {'attack_target': 10}, 'got 10, expected a class, 0 to 9'),
  ({'attack': 'alie'}, 'attackers: got 0.0, expected above 0 with an attack, '),
  ({'attackers': 0.2}, 'got 0.2, expected 0.0 without attack: alone it does'),
  ({'attack': 'alie', 'attacker_ids': (3, 20)}, 'ids of clients that take '),
  ({'attack': 'best_alie', 'attackers': 0.2}, 'best_alie against a robust agg'),
  (MONNA, 'another rule, or client_fraction=1 and client 0, whom it trusts'),
  (MDA, 'mda looks at 62,852,101,650 choices of 24 among 40, more than 100,'),
  ({'devices': 2, 'debug': True}, "got '2 devices or processes, with debug"),
]
# Found in the start, and in labels alone: more are in data/partition_test.py.
BEFORE_COMPILING = [
  ({'init_from': 'nowhere'}, "run: got 'nowhere', expected a run directory"),
  (CLIENTS_15, 'shards_per_client: got 3, expected a positive multiple of 2: '),
  ({'num_clients': 1, 'shards_per_client': 2}, 'iid takes any num_clients'),
  ({'validation_fraction': 0.995}, 'it takes all 73 training examples of cli'),
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
  assert owner_of(settings, {}, '6', '').client == 6
  words = "client: got '7', expected a client of the run, 0 to 6, or server"
  message = refused(owner_of, settings, {}, '7', '')
  assert words in message and 'a client who came after training' in message
