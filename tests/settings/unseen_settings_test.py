"""Unseen clients beside other settings: what is refused, and the keys."""

import pytest
from helpers import refused
from small_runs import settings_of

from fedjax_pfl.analysis.export import choose
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.keys import evaluation_key, training_key


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      {'num_clients': 10, 'unseen_clients': 10},
      "unseen_clients: got '10 of 10 clients', expected at most 9: a cohort "
      'has at least one client. Choices: unseen_clients=0, ',
    ),
    (
      {'unseen_clients': 2, 'server_data_fraction': 0.1},
      'expected 0 with unseen_clients: the server would train on examples of '
      'clients who come later',
    ),
    (
      {'num_clients': 10, 'unseen_clients': 3, 'save_clients': (7,)},
      'save_clients: got 7, expected ids of clients, 0 to 6. Likely cause: '
      'fewer clients than before, or one of unseen_clients',
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
  ],
)
def test_a_run_is_refused_before_it_reads_data(changes, words, monkeypatch):
  monkeypatch.setattr('fedjax_pfl.training.build.build_data', pytest.fail)
  settings = settings_of(arg='fedavg', **changes)
  assert words in refused(build_experiment, settings)


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
  settings = parse_config(
    settings_of(arg='fedavg', num_clients=10, unseen_clients=3)
  )
  assert choose(settings, {}, '6', '').client == 6
  words = "client: got '7', expected a client of the run, 0 to 6, or server"
  assert words in refused(choose, settings, {}, '7', '')
