"""A sweep as a user starts it: plan, training, table and verdict."""

import numpy as np
import pytest
import small_cells
from helpers import refused
from user_commands import load_command

from experiments import commandline
from experiments.sweep_table import as_table, tried_on_validation
from fedjax_pfl.compare import train as module
from fedjax_pfl.compare.combinations import parse_seeds
from fedjax_pfl.compare.plan import check, grouped, of_combinations
from fedjax_pfl.results.statistics.choice import Tried, best_of, verdict

DIGITS = 'configs/digits.py:fedprox,quick'


def plan(*combinations, seeds=(0,), tunes=False, **fields):
  configs = [
    commandline.read_settings(DIGITS, {**fields, **own}) for own in combinations
  ]
  planned = of_combinations(combinations, configs, seeds)
  check([planned], tunes=tunes)
  return planned


@pytest.mark.parametrize(
  ('fields', 'words'),
  [
    ({'learning_rat': '0.1'}, 'did you mean learning_rate?'),
    ({'hp.mu': '-1.0'}, 'a number, 0 or more'),
    ({'views': "('nothing',)"}, 'expected a view of this method'),
  ],
)
def test_what_no_setting_can_be_is_refused_before_training(fields, words):
  assert words in refused(plan, {'learning_rate': '0.1'}, fields)


def test_every_seed_is_that_of_its_place():
  planned = plan({'hp.mu': '0.1'}, {'hp.mu': '1.0'}, seeds=parse_seeds('3:6'))
  seeds = [settings.seed for settings, _ in planned]
  assert grouped(planned, seeds) == [[3, 4, 5]] * 2
  assert [*parse_seeds('2')] == [0, 1]
  for text in ('0', '3:3', '3:', '-1:2', 'two', '1:2:3', ''):
    assert refused(parse_seeds, text).startswith('--seeds: got ')


@pytest.mark.parametrize('field', ['seed', 'hp.mu'])
def test_seeds_and_varied_fields_of_all_combinations_are_refused(
  field, monkeypatch
):
  main, file = load_command(monkeypatch, 'sweep.py')
  words = file, f'--config={DIGITS}', '--grid=hp.mu=much', f'--config.{field}=3'
  sentence = refused(main, commandline.parse_words(words)[0])
  assert f"got '{field}', expected every field once, and no seed" in sentence


def test_the_command_of_the_best_can_be_pasted(monkeypatch):
  main, file = load_command(monkeypatch, 'sweep.py')
  commandline.parse_words([file, '--config=my digits.py:fedprox'])
  command = main.__globals__['command_of']({'hp.mu': '1'})
  assert (
    "fedjax-pfl train \\\n    '--config=my digits.py:fedprox' \\\n" in command
  )


def test_tuning_needs_validation_examples():
  def tuned(**fields):
    return plan({'hp.mu': '1'}, tunes=True, **fields)

  assert '--config.validation_fraction=0.2' in refused(tuned)
  assert tuned(validation_fraction='0.1')
  fields = {'validation_fraction': '0.1', 'tunes': True}
  message = refused(
    lambda: plan({'num_clients': '10'}, {'num_clients': '20'}, **fields)
  )
  assert 'settings that differ in num_clients' in message


def test_a_sweep_from_plan_to_verdict(tmp_path, monkeypatch, quick_compiler):
  monkeypatch.setattr(module.build, 'build_experiment', small_cells.build)
  rates = [{'learning_rate': rate} for rate in ('0.5', '1e38', '0.001')]
  planned = plan(
    *rates,
    seeds=range(2),
    tunes=True,
    validation_fraction='0.2',
    views="('initial',)",
    eval_views='()',
  )
  groups = module.train_groups(planned, tmp_path, lambda text: None)
  # The mean of the seeds that are left would be too high.
  assert [len(group) for group in groups] == [2, 0, 2]
  tried = tried_on_validation(groups)
  assert best_of(tried) == 0 and tried[1] is None
  head, _, best, hot, low = as_table(rates, groups, tried).splitlines()
  assert head.split() == ['learning_rate', 'validation', 'tests']
  views = [run.result['views'] for run in groups[0]]
  on_tests = sum(own['initial']['mean'] for own in views) / 2
  assert f'{tried[0].mean:.2f} ±' in best and f'{on_tests:.2f} ±' in best
  assert hot.split() == ['1e38', 'diverged'] and low.count('±') == 1
  untuned = as_table(rates, groups, []).splitlines()
  assert untuned[3].split() == ['1e38', 'diverged'] and '±' in untuned[4]


def test_a_verdict_says_whether_seeds_tell_the_best_from_the_second():
  both = {'hp.mu': '1'}, {'hp.mu': '2'}

  def tried(*values):
    return Tried('', dict(enumerate(np.array(values, float)[:, None])))

  low = tried(50, 50, 50)
  # Student's t of three seeds, 4.303, times a deviation of 1 / sqrt(3).
  assert verdict(both, [low, tried(59, 60, 61)]) == (
    'Best on validation: hp.mu=2, 60.00 %, 10.00 points above hp.mu=1 (95 % '
    'interval 7.52 to 12.48, paired over seeds; by Holm over all pairs of '
    'settings: distinguishable).'
  )
  unsure = verdict(both, [low, tried(50, 60, 70)])
  assert 'settings: not distinguishable).' in unsure
  one = verdict(both, [tried(50), tried(60)])
  assert 'hp.mu=1 (of one seed, which says nothing of others).' in one
  assert 'the only setting' in verdict(both, [None, low])
