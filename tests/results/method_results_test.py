"""From run directories to the choice, the accuracies and the costs."""

import numpy as np
import pytest
from helpers import refused

from experiments.sweep_table import tried_on_validation
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.measures import measure_of
from fedjax_pfl.results.runs.entry import (
  METHOD,
  Choice,
  costs_of,
  read_entry,
)
from fedjax_pfl.results.runs.run import read, read_group
from fedjax_pfl.results.statistics.choice import (
  best_of,
  choose,
  lead_of,
  verdict,
)
from fedjax_pfl.runs import client_scores
from fedjax_pfl.training import divergence
from tests.results import page_runs

FIELDS = {'num_clients': 4, 'client_fraction': 0.5, 'validation_fraction': 0.2}
LINES = [
  dict(stage='a', round=2, num_steps=6.0, bytes_up=10, bytes_down=20),
  dict(stage='b', round=3, num_steps=9.0, bytes_up=5, bytes_down=7),
]
WORSE = Scores(np.zeros(4, int), np.full(4, 1000))


@pytest.fixture
def make(tmp_path):
  """Return (name, accuracies on validation after the last round) -> a run."""

  def make(name, one=80.0, five=81.0, **changes):
    path = tmp_path / name
    views, count = {'finetuned_1': one, 'finetuned': five}, np.full(4, 1000)
    right = {view: np.full(4, 10 * own) for view, own in views.items()}
    found = {
      view: Scores(own.astype(int), count) for view, own in right.items()
    }
    chosen = {f'validation/{view}': own for view, own in found.items()}
    page_runs.make_run(
      path, **FIELDS, **changes, validation=found['finetuned'], lines=LINES
    )
    for number in ('2', '3'):  # the last counts
      own = chosen if number == '3' else dict.fromkeys(chosen, WORSE)
      client_scores.write(path / 'scores', number, own)
    return path

  return make


def diverge(path):
  (path / 'result.json').unlink()
  (path / divergence.NAME).write_text('{"message": "not finite"}')
  return path


def test_the_choice_is_the_best_mean_on_validation(make):
  runs = [
    [make('a', 90.0, 91.0), make('b', 94.0, 89.0, seed=1)],
    [make('c', 92.0, 92.0), make('d', 92.0, 93.0, seed=1)],
    [make('e', 99.0, 99.0), diverge(make('f', 99.0, 99.0, seed=1))],
  ]
  own = [{'learning_rate': rate, 'hp.mu': 1} for rate in (0.01, 0.03, 0.1)]
  assert choose(own, [*map(read_group, runs)]) == Choice(
    own[1], 'finetuned', 92.5, ()
  )
  # Equal: the first setting, then the fewest epochs.
  first = Choice(own[0], 'finetuned_1', 92.0, ())
  assert choose(own[::2], [*map(read_group, runs[::2])]) == first
  assert choose(own[2:], [*map(read_group, runs[2:])]) is None
  # Of three the highest is an end that binds; hp.mu was always 1.
  groups = [[make(name, 80.0, 80.0 + at)] for at, name in enumerate('ghi')]
  assert choose(own, [*map(read_group, groups)]).ends == ('learning_rate',)


def test_the_lead_of_the_best_is_that_of_its_clients_and_seeds(make):
  """Leads of 20 and 10; then of 12, 2, 2 and 4 with every seed."""
  rows = {'a': ((50, 60), {}), 'b': ((30, 50), {})}
  fixed = {'partition': 'natural'}
  rows |= {
    'd': (([70, 50, 40, 40],) * 2, fixed),
    'e': (([58, 48, 38, 36],) * 2, fixed),
  }
  groups = {}
  for name, (seeds, changes) in rows.items():
    paths = [
      make(f'{name}{seed}', 1.0, np.array(own) * 1.0, seed=seed, **changes)
      for seed, own in enumerate(seeds)
    ]
    groups[name] = read_group(paths)
  tried = tried_on_validation([groups['b'], groups['a']])
  half = 12.7062 * 5  # Student's t
  second, lead = lead_of(tried)
  assert (best_of(tried), second) == (1, 0)
  assert lead.gap[:3] == pytest.approx((15, 15 - half, 15 + half), abs=0.01)
  _, lead = lead_of(tried_on_validation([groups['d'], groups['e']]))
  error = np.std([12, 2, 2, 4], ddof=1) / 2
  assert lead.gap.high - 5 == pytest.approx(12.7062 * error, rel=1e-4)
  alone = tried_on_validation([groups['a'][:1], groups['b'][:1]])
  assert lead_of(alone) == (1, None)  # one seed says nothing of others
  alone = tried_on_validation([[], groups['a']])
  assert lead_of(alone) == (None, None) and alone[0] is None
  message = refused(tried_on_validation, [[], []])
  assert '2 settings, in each of which a run diverged' in message


@pytest.mark.parametrize(('better', 'best'), [('max', 0), ('min', 1)])
def test_a_metric_of_the_user_may_choose(make, better, best):
  measure, groups = measure_of('gaps', better), []
  for name, low, high in (('one', 0.7, 0.9), ('other', 0.2, 0.3)):
    path, right = make(name), np.full(4, 900)
    shorter = {'gaps': np.array([low, low, np.nan, low])}
    longer = {'gaps': np.full(4, high)}
    scores = {
      'validation/finetuned_1': Scores(right, WORSE.count, own=shorter),
      'validation/finetuned': Scores(right, WORSE.count, own=longer),
    }
    client_scores.write(path / 'scores', '3', scores)
    groups.append(read_group([path]))
  tried = tried_on_validation(groups, measure)
  assert best_of(tried) == best
  want = {'max': (0.9, 0.3), 'min': (0.7, 0.2)}[better]
  assert [one.mean for one in tried] == pytest.approx(want)
  text = verdict([{'hp.mu': '1'}, {'hp.mu': '2'}], tried)
  assert text.startswith(f'Best on validation by gaps: hp.mu={best + 1} in')
  assert {'max': '0.6 above', 'min': '0.5 below'}[better] in text
  message = refused(tried_on_validation, groups, measure_of('f1', 'max'))
  assert "tune_by: got 'f1'" in message and 'accuracy, gaps' in message


def test_ends_are_those_of_the_rates_and_epochs_that_were_tried(make):
  path, count = make('rates'), WORSE.count

  def ends(**percent):
    scores = {
      f'validation/{view}': Scores(np.full(4, 10 * own), count)
      for view, own in percent.items()
    }
    client_scores.write(path / 'scores', '3', scores)
    return choose([{'hp.mu': 1}], [read_group([path])]).ends

  rates = {'finetuned': 50, 'finetuned_x0.3': 60, 'finetuned_x0.1': 70}
  assert ends(**rates) == ('finetune.learning_rate',)
  assert ends(**rates, **{'finetuned_x0.03': 65}) == ()
  epochs = {'finetuned_1': 50, 'finetuned_2': 60, 'finetuned': 70}
  assert ends(**epochs) == ('finetune.epochs',)
  assert ends(**epochs | {'finetuned_2': 80}) == ()
  assert ends(initial=90, **epochs) == ()


CHOICE = Choice({'learning_rate': 0.03}, 'finetuned_1', 92.0, ())


def test_an_entry_has_the_clients_of_every_seed_in_the_chosen_view(make):
  paths = [make('a'), make('b', seed=1)]
  entry = read_entry('fedavg', METHOD, CHOICE, (0, 1), paths, whole=())
  np.testing.assert_array_equal(entry.before.accuracy, [[10, 20, 30, 40]] * 2)
  np.testing.assert_array_equal(entry.after.accuracy, [[40, 40, 40, 40]] * 2)
  assert not entry.obstacle


def test_costs_are_those_of_all_rounds_and_the_cohort(make):
  costs = costs_of(read(make('a')), whole=[])
  # Two clients a round: two rounds of 6 steps, then one of 9.
  assert costs.gradients == 2 * (2 * 6 + 9)
  assert (costs.bytes_up, costs.bytes_down, costs.seconds) == (15, 27, 90)
  # All four in the first stage.
  costs = costs_of(read(make('b')), whole=['a'])
  assert costs.gradients == 4 * 2 * 6 + 2 * 9
