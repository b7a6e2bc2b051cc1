"""Runs as lines of the report: which are one line, and what it is called."""

from page_runs import make_run

from fedjax_pfl.report.finished_runs import read_comparable
from fedjax_pfl.report.page.groups import UNTRAINED, make_groups
from fedjax_pfl.settings import FIELDS


def test_fields_that_change_no_number_make_no_group(tmp_path):
  """The report cannot import the settings; here the two lists are compared."""
  unmarked = {name for name, one in FIELDS.items() if not one.changes}
  assert {*UNTRAINED} == unmarked - {'views'} | {'seed', 'eval_every'}
  runs = [
    make_run(tmp_path / f'{seed}', seed=seed, tracker=tracker)
    for seed, tracker in enumerate(['none', 'wandb'])
  ]
  (group,) = make_groups(read_comparable(runs))
  assert group.label == 'FedAvg'


def test_labels_name_the_group_of_a_field(tmp_path):
  """Two learning rates, and a hyperparameter with the name of a field."""
  changes = [
    {'learning_rate': 0.1, 'finetune': {'learning_rate': rate}}
    for rate in (0.001, 0.05)
  ]
  changes += [
    {'learning_rate': 0.1, 'hp': {'learning_rate': rate, 'mu': 1}}
    for rate in (0.2, 0.3)
  ]
  labels = [
    group.label
    for pair in (changes[:2], changes[2:])
    for group in make_groups(
      read_comparable([make_run(tmp_path / f'{one}', **one) for one in pair])
    )
  ]
  names = ['finetune.learning_rate'] * 2 + ['hp.learning_rate'] * 2
  assert labels == [
    f'FedAvg, {name}={rate}'
    for name, rate in zip(names, (0.001, 0.05, 0.2, 0.3), strict=True)
  ]
