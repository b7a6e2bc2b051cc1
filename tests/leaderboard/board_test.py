"""What is said about numbers that were made so that it is known."""

import numpy as np
import pytest
from made_entries import K, S, make_entries, make_entry

from fedjax_pfl.leaderboard.board import make_board, sentences

BASELINES = 'fedavg', 'local_only'


@pytest.fixture(scope='module')
def board():
  return make_board('s=2', make_entries(), BASELINES)


def test_verdicts_are_those_of_the_numbers(board):
  verdicts = {
    baseline: {method: one.sign for method, one in found.items()}
    for baseline, found in board.against.items()
  }
  others = {'fedrep': 1, 'fedbabu': 1, 'ditto': 0, 'per_fedavg': -1}
  assert verdicts == {
    'fedavg': {'local_only': -1, **others},
    'local_only': {'fedavg': 1, **others},
  }
  one = board.against['fedavg']['fedrep']
  assert one.low < one.mean < one.high
  np.testing.assert_allclose(one.mean, 4.0)


def test_sentences_name_who_is_where(board):
  best, fedavg, local, obstacle = sentences(board)
  assert best == (
    'Highest: FedBABU, 84.1 % on average over clients after personalisation; '
    'not distinguishable from it: FedRep.'
  )
  assert fedavg == (
    'Against FedAvg + fine-tuning, above: FedBABU (+4.1), FedRep (+4.0); '
    'below: Local only (-2.0), Per-FedAvg (-20.0); not distinguishable from '
    'it: Ditto.'
  )
  assert local.startswith('Against Local only, above: FedBABU (+6.1), ')
  assert obstacle == 'pFedMe diverged with every rate.'


def test_equal_methods_are_never_told_apart():
  entries = [make_entry(name, 80, before=50) for name in (*BASELINES, 'ditto')]
  board = make_board('s=5', entries, BASELINES)
  assert {*board.peers} == {'local_only', 'ditto'}
  assert 'no method is distinguishable from it' in sentences(board)[0]
  assert 'above: none; below: none' in sentences(board)[1]


def test_there_is_no_board_without_both_baselines():
  first, *rest = make_entries()
  diverged = first._replace(after=None)
  for entries in (rest, [diverged, *rest]):
    assert make_board('s=2', entries, BASELINES) is None


def test_a_client_without_tests_is_in_no_comparison():
  entries = make_entries()[:3]
  for entry in entries:
    entry.after[0, :2] = np.nan
  board = make_board('s=2', entries, BASELINES)
  assert np.isfinite(board.against['fedavg']['fedrep'][:3]).all()
  assert entries[0].after.shape == (S, K)
