"""Which views of a run are before and after personalisation."""

import pytest

from fedjax_pfl.report.finished_runs import chosen_by_tests, first_and_after

BEST = {'test_best_view': {'mix': {'together': {'view': 'mix_0.5'}}}}


@pytest.mark.parametrize(
  ('views', 'want'),
  [
    (['initial', 'finetuned'], ('initial', 'finetuned')),
    (['finetuned', 'initial'], ('initial', 'finetuned')),
    (['personal', 'initial'], ('initial', 'personal')),
    (['finetuned_1', 'finetuned', 'initial'], ('initial', 'finetuned')),
    (['initial'], (None, 'initial')),
    (['finetuned_1', 'finetuned'], ('finetuned_1', 'finetuned')),
    (['finetuned', 'finetuned_1'], ('finetuned_1', 'finetuned')),
  ],
)
def test_the_initial_view_is_before_wherever_the_config_has_it(views, want):
  assert first_and_after(views, {}) == want


@pytest.mark.parametrize('place', [0, 2])
def test_a_family_is_found_wherever_the_initial_view_is(place):
  views = ['mix_0.5', 'mix_1.0']
  views.insert(place, 'initial')
  assert first_and_after(views, BEST) == ('initial', 'mix_0.5')
  assert chosen_by_tests(views, BEST) == 'mix_0.5'


def test_the_tests_choose_no_length_of_fine_tuning():
  lengths = ['initial', 'finetuned_1', 'finetuned_5']
  best = {'finetuned': {'together': {'view': 'finetuned_1'}}}
  result = {'test_best_view': best}
  assert chosen_by_tests(lengths, result) is None
  assert first_and_after(lengths, result) == ('initial', 'finetuned_5')


@pytest.mark.parametrize('select', ['last', 'validation'])
def test_with_validation_the_view_after_is_that_of_the_result(select):
  views = ['initial', 'mix_0.0', 'mix_0.5', 'mix_1.0']
  chosen = {'last': {'view': 'mix_1.0'}, 'validation': {'view': 'mix_0.0'}}
  result = {'select': select, **chosen, **BEST}
  assert first_and_after(views, result) == ('initial', chosen[select]['view'])
  assert chosen_by_tests(views, result) is None
