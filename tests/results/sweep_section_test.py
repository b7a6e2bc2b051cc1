"""Settings of one method on the page: heat map, strips, curves."""

import re

import numpy as np
import pytest
from page_runs import make_run

from experiments.sweep_table import on_tests
from fedjax_pfl.core.types import Scores
from fedjax_pfl.results.page.render import render
from fedjax_pfl.results.page.sweep_section import find_sweep, make_section
from fedjax_pfl.results.runs.groups import make_groups
from fedjax_pfl.results.runs.run import read_comparable, read_group

COUNT = np.full(4, 10)
GRID = [
  {'learning_rate': rate, 'hp': {'mu': mu}}
  for rate, mu in ((0.1, 1), (0.1, 10), (0.02, 1))
]
RATES = [{'learning_rate': rate} for rate in (0.1, 0.2, 0.3)]
SPACE = '\N{NO-BREAK SPACE}'


def make_settings(folder, settings):
  """Return runs of two seeds, a setting for each dict of fields.

  On validation, seed s of setting i has i + s + 1 of 10 right.
  """
  return [
    make_run(
      folder / f'{place}_{seed}',
      seed=seed,
      validation=Scores(np.full(4, place + seed + 1), COUNT),
      **fields,
    )
    for place, fields in enumerate(settings)
    for seed in (0, 1)
  ]


@pytest.fixture(scope='module')
def grid(tmp_path_factory):
  return make_settings(tmp_path_factory.mktemp('grid'), GRID)


def sweep_of(paths):
  return find_sweep(make_groups(read_comparable(paths)))


def words_of(svg):
  return re.findall(r'<text[^>]*>([^<]*)</text>', svg)


def test_two_fields_are_a_heat_map(grid):
  first = make_section(sweep_of(grid))
  (panel,) = first.panels
  # Rows and columns in the order of their numbers; one cell was not run.
  assert words_of(panel.svg) == [
    *('hp.mu', 'learning_rate', '1', '10'),
    *('0.02', '35.0', '–', '0.1', '15.0', '25.0'),
  ]
  assert words_of(panel.svg.split('class="frame"')[1])[0] == '35.0'
  page = render(grid)
  # The tests of all settings are equal: they have chosen nothing.
  assert (
    'Best on validation: learning_rate=0.02, hp.mu=1 in the view finetuned, '
    '35.00 %, 10.00 points above learning_rate=0.1, hp.mu=10 (95 % interval '
    '10.00 to 10.00, paired over seeds; by Holm over all pairs of settings: '
    f'distinguishable). On the tests it has 67.5{SPACE}%.'
  ) in page


def test_a_setting_with_fewer_seeds_is_not_the_choice(grid):
  """Its last seed diverged; on the first it is the best."""
  first = make_section(sweep_of(grid[:-1]))
  _, framed = first.panels[0].svg.split('class="frame"')
  assert words_of(framed)[0] == '25.0' and '30.0' not in first.panels[0].svg
  assert 'with fewer seeds than others' in first.text


def test_one_field_is_a_row_for_each_value(tmp_path):
  rates = make_settings(tmp_path, RATES)
  first = make_section(sweep_of(rates))
  (panel,) = first.panels
  assert panel.title == 'learning_rate'
  rows = ['0.1', '15.0', '0.2', '25.0', '0.3', '35.0']
  assert words_of(panel.svg)[-6:] == rows
  assert panel.svg.count('class="mark"') == panel.svg.count('class="link"') == 3
  assert sweep_of(rates[:4]) is None  # two settings are no sweep


def test_the_tests_of_the_choice_are_those_of_the_sweeps_table(tmp_path):
  """Of each seed in the view that validation chose, not that of the tests."""
  views = {'initial': [2] * 4, 'mix_0.4': [8] * 4, 'mix_0.5': [12] * 4}
  best = {'mix': {'together': {'view': 'mix_0.5', 'mean': 60.0}}}
  folders = []
  for place, rate in enumerate(RATES):
    for seed, view in enumerate(('mix_0.4', 'mix_0.5')):
      summary = {view: {'mean': 10.0, 'std': 0.0}}
      choice = {'round': 4, 'view': view, 'views': summary}
      choice |= {'validation_accuracy': 90.0}
      more = {'select': 'validation', 'validation': choice, 'last': choice}
      more |= {'test_best_view': best, 'test_best': {}}
      folders.append(tmp_path / f'{place}_{seed}')
      right = Scores(np.full(4, 9 - place), COUNT)
      own = {'views': views, 'validation': right, 'more': more, **rate}
      make_run(folders[-1], 'superfed', seed=seed, **own)
  assert on_tests(read_group(folders[:2]), '') == '50.00 ± 14.14'
  text = render(folders)
  assert f'On the tests it has 50.0{SPACE}%.' in text
  assert 'initial and mix_0.4 or mix_0.5.' in text
  assert 'is chosen by the tests' not in text
