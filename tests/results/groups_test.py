"""Which views are compared, which runs are one line, and what it is called."""

import numpy as np
import pytest
from page_runs import make_run

from fedjax_pfl.data.held_out import order_clients
from fedjax_pfl.results.page.render import render
from fedjax_pfl.results.runs.groups import make_groups
from fedjax_pfl.results.runs.run import (
  chosen_by_tests,
  first_and_after,
  read_comparable,
)
from fedjax_pfl.runs.client_scores import Clients

BEST = {'mix': {'together': {'view': 'mix_0.5'}}}
SHORT = {'finetuned': {'together': {'view': 'finetuned_1'}}}
CHOSEN = {'validation': {'view': 'mix_0.0'}}
MIXTURES = 'initial mix_0.0 mix_0.5 mix_1.0'


@pytest.mark.parametrize(
  ('views', 'best', 'select', 'want', 'by_tests'),
  [
    ('initial finetuned', {}, '', 'initial finetuned', None),
    ('personal initial', {}, '', 'initial personal', None),
    ('finetuned_1 finetuned initial', {}, '', 'initial finetuned', None),
    ('initial', {}, '', 'None initial', None),
    # Without 'initial' nothing is before: another rule, fewer epochs.
    ('personal prototypes', {}, '', 'None prototypes', None),
    ('finetuned finetuned_1', {}, '', 'None finetuned', None),
    # Of a family the best on the tests;
    ('initial mix_0.5 mix_1.0', BEST, '', 'initial mix_0.5', 'mix_0.5'),
    # not of several lengths of fine-tuning, nor where validation chooses.
    ('initial finetuned_1 finetuned_5', SHORT, '', 'initial finetuned_5', None),
    (MIXTURES, BEST, 'validation', 'initial mix_0.0', None),
  ],
)
def test_the_views_before_and_after(views, best, select, want, by_tests):
  result = {'test_best_view': best}
  if select:
    result |= {'select': select, **CHOSEN}
  found = first_and_after(views.split(), result)
  assert ' '.join(map(str, found)) == want
  assert chosen_by_tests(views.split(), result) == by_tests


def test_fields_that_change_no_number_make_no_group(tmp_path):
  """Nor does a field that configs got after one of the runs."""
  trackers = ['none', 'wandb']
  assert labels(tmp_path, *({'tracker': one} for one in trackers)) == ['FedAvg']
  old, new = {'seed': 5}, {'seed': 6, 'clip_norm': 0.0, 'dp': {'clip': 0.0}}
  assert labels(tmp_path / 'later', old, new) == ['FedAvg']
  # Seeds that begin with runs of their own are one line.
  first = [
    make_run(tmp_path / f'first{seed}', seed=seed, shards_per_client=shards)
    for seed, shards in enumerate((2, 2, 5))
  ]
  words = 'FedAvg, init_from.shards_per_client='
  began = labels(tmp_path / 'then', *({'init_from': one} for one in first))
  assert began == [f'{words}2', f'{words}5']


def labels(folder, *changes):
  runs = [
    make_run(folder / f'{seed}', **{'seed': seed, **one})
    for seed, one in enumerate(changes)
  ]
  return [group.label for group in make_groups(read_comparable(runs))]


def test_runs_are_compared_on_the_clients_that_all_have(tmp_path):
  """Of five clients 2 and 4 come later."""
  assert order_clients(5, 2, 0).tolist() == [0, 1, 3, 2, 4]
  later = Clients(np.array([3, 4]), np.full(2, 40), {})
  views = {'initial': [2, 4, 6], 'finetuned': [18, 16, 14]}
  fewer = make_run(
    tmp_path / 'a',
    views=views,
    classes=None,
    unseen_clients=2,
    unseen=later,
    data='data-x',
    partition='iid',
  )
  every = {'personal': [20, 10, 1, 12, 1]}
  alone = make_run(
    *(tmp_path / 'b', 'local_only'), views=every, classes=None, partition='iid'
  )
  for paths in ([fewer, alone], [alone, fewer]):
    both = {run.method: run for run in read_comparable(paths)}
    assert both['fedavg'].accuracy('finetuned').tolist() == [90, 80, 70]
    assert both['local_only'].accuracy('personal').tolist() == [100, 50, 60]
    assert both['local_only'].summary('personal')['mean'] == 70
    assert both['local_only'].data == both['fedavg'].data
  page = render(paths)
  assert 'the numbers are of the 3 clients that each has' in page
  assert '33 %' in page  # worse than alone: one of three
  (run,) = read_comparable([alone])
  assert run.summary('personal')['num_clients'] == 5


def test_clients_with_names_are_compared_by_name(tmp_path):
  """Other clients than the seed would draw come later."""
  every, classes = [*'abcde'], np.array(['ill', 'well'])
  correct = dict(zip(every, [2, 4, 6, 8, 10], strict=True))

  def write(folder, who, later=()):
    named = Clients(np.arange(2), np.full(2, 40), {}, names=np.array(later))
    return make_run(
      tmp_path / folder,
      views={'initial': [correct[name] for name in who]},
      classes=None,
      partition='natural',
      data='data-x' if later else 'data',
      of_clients={'names': np.array(who), 'class_names': classes},
      **({'unseen_clients': tuple(later), 'unseen': named} if later else {}),
    )

  paths = [write('all', every), write('some', [*'bde'], [*'ac'])]
  for run in read_comparable(paths[::-1]):
    assert [*run.clients.labels] == [*'bde']
    assert run.clients.class_names.tolist() == ['ill', 'well']
    assert run.accuracy('initial').tolist() == [20, 40, 50]


A, B, C = (f'net.py:{name}#00000000000{name}' for name in 'abc')


@pytest.mark.parametrize(
  ('changes', 'want'),
  [
    # With the group of a field, unless it is that of the hyperparameters.
    (
      [{'lr': 1, 'finetune': {'lr': rate}} for rate in (0.1, 0.5)],
      ['finetune.lr=0.1', 'finetune.lr=0.5'],
    ),
    (
      [{'mu': 0.1, 'hp': {'mu': rate, 'a': 1}} for rate in (0.2, 0.3)],
      ['hp.mu=0.2', 'hp.mu=0.3'],
    ),
    # A sweep to which one over mu was added: its runs have the default.
    (
      [{'hp': {}, 'lr': 1}, {'hp': {'mu': 1.0}, 'lr': 1}],
      ['mu=default', 'mu=1.0'],
    ),
    # Digests of one's own code, where they alone differ.
    ([{'loss': A}, {'loss': B}], ['loss=net.py:a', 'loss=net.py:b']),
    (
      [{'loss': A}, {'loss': A[:-1] + 'f'}, {'loss': C}],
      [f'loss={A}', f'loss={A[:-1]}f', f'loss={C}'],
    ),
    # The same again is no second seed.
    ([{'seed': 5}, {'seed': 5, 'log_every': 7}], ['0', '1']),
  ],
)
def test_labels_tell_the_settings_apart(tmp_path, changes, want):
  changes = [{'seed': 0, **one} for one in changes]
  assert labels(tmp_path, *changes) == [f'FedAvg, {words}' for words in want]
