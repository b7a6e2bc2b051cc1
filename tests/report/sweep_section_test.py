"""Settings of one method on the page: heat map, strips, curves."""

import re

import numpy as np
import pytest
from page_runs import make_run

from fedjax_pfl.core.types import Scores
from fedjax_pfl.report.finished_runs import read_comparable
from fedjax_pfl.report.page import render
from fedjax_pfl.report.page.groups import make_groups
from fedjax_pfl.report.page.sweep_section import find_sweep, make_sections
from fedjax_pfl.tuning import sweep as sweeps

COUNT = np.full(4, 10)
GRID = [
  {'learning_rate': rate, 'hp': {'mu': mu}}
  for rate, mu in ((0.1, 1), (0.1, 10), (0.02, 1))
]
RATES = [{'learning_rate': rate} for rate in (0.1, 0.2, 0.3)]
SPACE = '\N{NO-BREAK SPACE}'


def make_settings(folder, settings, count=COUNT):
  """Return runs of two seeds, a setting for each dict of fields.

  On validation, seed s of setting i has i + s + 1 of 10 right.
  """
  return [
    make_run(
      folder / f'{place}_{seed}',
      seed=seed,
      validation=Scores(np.full(4, place + seed + 1), count),
      **fields,
    )
    for place, fields in enumerate(settings)
    for seed in (0, 1)
  ]


@pytest.fixture(scope='module')
def grid(tmp_path_factory):
  return make_settings(tmp_path_factory.mktemp('grid'), GRID)


@pytest.fixture(scope='module')
def rates(tmp_path_factory):
  return make_settings(tmp_path_factory.mktemp('rates'), RATES)


def sweep_of(paths):
  return find_sweep(make_groups(read_comparable(paths)))


def sections_of(paths):
  return make_sections(sweep_of(paths))


def words_of(svg):
  return re.findall(r'<text[^>]*>([^<]*)</text>', svg)


def test_two_fields_are_a_heat_map(grid):
  first, curves = sections_of(grid)
  (panel,) = first.panels
  # Rows and columns in the order of their numbers; one cell was not run.
  assert words_of(panel.svg) == [
    *('hp.mu', 'learning_rate', '1', '10'),
    *('0.02', '35.0', '–', '0.1', '15.0', '25.0'),
  ]
  assert words_of(panel.svg.split('class="frame"')[1])[0] == '35.0'
  assert 'validation examples' in first.text
  assert [(panel.title, panel.note) for panel in curves.panels] == [
    ('learning_rate=0.02, hp.mu=1', '35.00'),
    ('learning_rate=0.1, hp.mu=10', '25.00'),
    ('learning_rate=0.1, hp.mu=1', '15.00'),
  ]
  assert all(panel.svg.count('class="other"') == 2 for panel in curves.panels)
  page = render(grid)
  assert page.count('<figure class="small">') == 3
  order = ['<h2>Sweep</h2>', 'Curve of every setting', '<h2>Summary</h2>']
  assert sorted(order, key=page.index) == order
  # The tests of all settings are equal: they have chosen nothing.
  assert (
    'Of 3 settings, validation chooses FedAvg, learning_rate=0.02, mu=1: '
    f'35.0{SPACE}% there, 67.5{SPACE}% on the tests.'
  ) in page


def test_a_setting_with_fewer_seeds_is_not_the_choice(grid):
  """Its last seed diverged; on the first it is the best."""
  first, _ = sections_of(grid[:-1])
  _, framed = first.panels[0].svg.split('class="frame"')
  assert words_of(framed)[0] == '25.0' and '30.0' in first.panels[0].svg
  values = [one.values for one in sweep_of(grid[:-1]).settings]
  numbers = [tuple(one.values()) for one in values]
  assert numbers == [(0.1, 10), (0.1, 1), (0.02, 1)]
  assert 'with fewer seeds than others' in first.text


def test_one_field_is_a_strip_and_a_curve_is_that_of_its_number(rates):
  first, curves = sections_of(rates)
  (panel,) = first.panels
  assert panel.title == 'learning_rate'
  assert words_of(panel.svg)[-4:] == ['0.1', '0.2', '0.3', 'learning_rate']
  assert panel.svg.count('class="dots"') == panel.svg.count('class="link"') == 3
  assert curves.text.startswith('initial/accuracy over rounds')
  groups = make_groups(read_comparable(rates))
  for line in (line for g in groups for r in g.runs for line in r.metrics):
    line |= {'validation/finetuned_1': 1.0, 'validation/finetuned': 8.0}
  _, curves = make_sections(find_sweep(groups))
  assert curves.text.startswith('validation/finetuned over rounds, mean over')
  assert words_of(curves.panels[0].svg)[0] == '8'


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
  assert sweeps._on_tests(folders[:2]) == '50.00 ± 10.00'
  text = render(folders)
  assert f'there, 50.0{SPACE}% on the tests.' in text
  assert 'initial and mix_0.4 or mix_0.5.' in text
  assert 'is chosen by the tests' not in text


def test_settings_without_a_finite_accuracy(tmp_path):
  """Of one seed of a setting: it comes last. Of all: there is no sweep."""
  paths = [
    make_run(
      tmp_path / f'{rate}_{seed}',
      seed=seed,
      validation=Scores(np.full(4, place), COUNT * (place > seed)),
      learning_rate=rate,
    )
    for place, rate in enumerate((0.1, 0.2, 0.3, 0.4))
    for seed in (0, 1)
  ]
  first, curves = sections_of(paths)
  assert first.panels[0].svg.count('class="dots"') == 2
  assert 'nan' not in first.panels[0].svg
  ends = [(panel.title[-1], panel.note) for panel in curves.panels]
  assert ends == [('4', '30.00'), ('3', '20.00'), ('1', '–'), ('2', '–')]
  nothing = make_settings(tmp_path / 'empty', GRID, count=COUNT * 0)
  assert sweep_of(nothing) is None


def test_without_validation_the_tests_are_named(tmp_path, rates):
  paths = [make_run(tmp_path / f'{at}', **one) for at, one in enumerate(RATES)]
  assert 'to choose by the tests' in sections_of(paths)[0].text
  assert 'end highest' in render(paths)
  assert sweep_of(rates[:4]) is None  # two settings are no sweep
  names = 'fedavg', 'fedper', 'ditto'
  others = [make_run(tmp_path / name, name) for name in names]
  assert sweep_of(others) is None
