"""Settings of one method on the page: heat map, strips, curves."""

import re

import numpy as np
from page_runs import make_run

from fedjax_pfl.core.types import Scores
from fedjax_pfl.report.finished_runs import read_comparable
from fedjax_pfl.report.page import render
from fedjax_pfl.report.page.groups import make_groups
from fedjax_pfl.report.page.sweep_section import find_sweep, make_sections
from fedjax_pfl.tuning import sweep as sweeps

COUNT = np.full(4, 10)


def make_settings(folder, *settings, **more):
  """Return groups of two seeds, a setting for each dict of fields."""
  paths = [
    make_run(
      folder / f'{place}_{seed}',
      seed=seed,
      validation=Scores(np.full(4, place + seed + 1), COUNT),
      **fields,
      **more,
    )
    for place, fields in enumerate(settings)
    for seed in (0, 1)
  ]
  return paths, make_groups(read_comparable(paths))


def sections_of(groups):
  return make_sections(find_sweep(groups))


def words_of(svg):
  return re.findall(r'<text[^>]*>([^<]*)</text>', svg)


def test_two_fields_are_a_heat_map(tmp_path):
  settings = [
    {'learning_rate': rate, 'hp': {'mu': mu}}
    for rate in (0.1, 0.02)
    for mu in (1, 10)
  ]
  paths, groups = make_settings(tmp_path, *settings[:3])
  first, curves = sections_of(groups)
  (panel,) = first.panels
  # Rows and columns in the order of their numbers; one cell was not run.
  assert words_of(panel.svg) == [
    *('hp.mu', 'learning_rate', '1', '10'),
    *('0.02', '35.0', '–', '0.1', '15.0', '25.0'),
  ]
  assert panel.svg.count('class="frame"') == 1
  assert 'validation examples' in first.text
  assert [panel.title for panel in curves.panels] == [
    'learning_rate=0.02, hp.mu=1',
    'learning_rate=0.1, hp.mu=10',
    'learning_rate=0.1, hp.mu=1',
  ]
  assert [panel.note for panel in curves.panels] == ['35.00', '25.00', '15.00']
  assert all(panel.svg.count('class="other"') == 2 for panel in curves.panels)
  page = render(paths)
  assert page.count('<figure class="small">') == 3
  order = ['<h2>Sweep</h2>', 'Curve of every setting', '<h2>Summary</h2>']
  assert sorted(order, key=page.index) == order
  # The tests of all settings are equal: they have chosen nothing.
  assert (
    'Of 3 settings, validation chooses FedAvg, learning_rate=0.02, mu=1: '
    '35.0\N{NO-BREAK SPACE}% there, 67.5\N{NO-BREAK SPACE}% on the tests.'
  ) in page


def test_the_tests_of_the_choice_are_those_of_the_sweeps_table(tmp_path):
  """Of each seed in the view that validation chose, not that of the tests."""
  views = {'initial': [2] * 4, 'mix_0.4': [8] * 4, 'mix_0.5': [12] * 4}
  best = {'mix': {'together': {'view': 'mix_0.5', 'mean': 60.0}}}
  folders = []
  for place, rate in enumerate((0.1, 0.2, 0.3)):
    for seed, view in enumerate(('mix_0.4', 'mix_0.5')):
      validation = Scores(np.full(4, 9 - place), COUNT)
      choice = {
        'round': 4,
        'view': view,
        'validation_accuracy': 90.0,
        'views': {view: {'mean': 10.0, 'std': 0.0}},
      }
      more = {'select': 'validation', 'validation': choice, 'last': choice}
      more |= {'test_best_view': best, 'test_best': {}}
      folders.append(tmp_path / f'{rate}_{seed}')
      make_run(
        folders[-1],
        'superfed',
        views=views,
        learning_rate=rate,
        seed=seed,
        validation=validation,
        more=more,
      )
  assert sweeps._on_tests(folders[:2]) == '50.00 ± 10.00'
  text = render(folders)
  assert 'there, 50.0\N{NO-BREAK SPACE}% on the tests.' in text
  assert 'initial and mix_0.4 or mix_0.5.' in text
  assert 'is chosen by the tests' not in text


def test_other_numbers_of_fields_are_strips(tmp_path):
  rates = [{'learning_rate': rate} for rate in (0.1, 0.02, 0.5)]
  _, groups = make_settings(tmp_path, *rates)
  (panel,) = sections_of(groups)[0].panels
  assert panel.title == 'learning_rate'
  assert words_of(panel.svg)[-4:] == ['0.02', '0.1', '0.5', 'learning_rate']
  assert panel.svg.count('class="dots"') == 3
  assert panel.svg.count('class="link"') == 3


def test_without_validation_the_tests_are_named(tmp_path):
  paths = [
    make_run(tmp_path / str(rate), learning_rate=rate)
    for rate in (0.1, 0.2, 0.3)
  ]
  first, _ = sections_of(make_groups(read_comparable(paths)))
  assert 'to choose by the tests' in first.text
  assert 'end highest' in render(paths)


def test_the_curve_of_a_setting_is_that_of_its_number(tmp_path):
  _, groups = make_settings(
    tmp_path, *({'learning_rate': rate} for rate in (0.1, 0.2, 0.3))
  )
  assert sections_of(groups)[1].text.startswith('initial/accuracy over rounds')
  for group in groups:
    for run in group.runs:
      for line in run.metrics:
        line |= {'validation/finetuned_1': 1.0, 'validation/finetuned': 8.0}
  section = sections_of(groups)[1]
  assert section.text.startswith('validation/finetuned over rounds, mean over')
  assert words_of(section.panels[0].svg)[0] == '8'


def test_a_run_without_a_hyperparameter_has_its_default(tmp_path):
  """A sweep over rates, to which one over mu was added."""
  paths = [
    make_run(tmp_path / str(place), 'fedprox', hp=hp, learning_rate=rate)
    for place, (hp, rate) in enumerate(
      [({}, 0.1), ({'mu': 1.0}, 0.1), ({'mu': 1.0}, 0.2)]
    )
  ]
  groups = make_groups(read_comparable(paths))
  assert groups[0].label == 'FedProx, mu=default, learning_rate=0.1'
  assert {*find_sweep(groups).fields} == {'learning_rate', 'hp.mu'}


def test_digests_of_own_code_are_left_out_unless_they_alone_differ(tmp_path):
  def labels(*losses):
    paths = [
      make_run(tmp_path / f'{len(losses)}{loss[-1]}', loss=loss)
      for loss in losses
    ]
    groups = make_groups(read_comparable(paths))
    values = [one.values['loss'] for one in find_sweep(groups).settings]
    assert [f'FedAvg, loss={value}' for value in values] == [
      group.label for group in groups
    ]
    return values

  a, b = 'net.py:a#00000000000a', 'net.py:a#00000000000b'
  assert labels(a, 'net.py:b#00000000000c', 'cross_entropy') == [
    *('net.py:a', 'net.py:b', 'cross_entropy')
  ]
  assert labels(a, b, 'net.py:b#00000000000c', 'x')[:2] == [a, b]


def test_settings_without_a_finite_accuracy(tmp_path):
  """Of one seed of a setting: it comes last. Of all: there is no sweep."""
  paths = [
    make_run(
      tmp_path / f'{rate}_{seed}',
      seed=seed,
      validation=Scores(np.full(4, place), COUNT * (place > least)),
      learning_rate=rate,
    )
    for place, rate in enumerate((0.1, 0.2, 0.3, 0.4))
    for seed, least in ((0, 0), (1, 1))
  ]
  groups = make_groups(read_comparable(paths))
  first, curves = sections_of(groups)
  assert first.panels[0].svg.count('class="dots"') == 2
  assert 'nan' not in first.panels[0].svg
  rates = [panel.title for panel in curves.panels]
  assert rates == [f'learning_rate=0.{rate}' for rate in (4, 3, 1, 2)]
  notes = [panel.note for panel in curves.panels]
  assert notes == ['30.00', '20.00', '–', '–']
  assert 'validation chooses FedAvg, learning_rate=0.4' in render(paths)
  nothing = [
    make_run(
      tmp_path / f'empty_{rate}_{momentum}',
      validation=Scores(np.zeros(4, int), np.zeros(4, int)),
      learning_rate=rate,
      momentum=momentum,
    )
    for rate in (0.1, 0.2)
    for momentum in (0.0, 0.9)
  ]
  assert find_sweep(make_groups(read_comparable(nothing))) is None
  assert '<h2>Sweep</h2>' not in render(nothing)


def test_a_setting_with_fewer_seeds_is_not_the_choice(tmp_path):
  """Its last seed diverged; on the first it is the best."""
  rates = [{'learning_rate': rate} for rate in (0.1, 0.2, 0.3)]
  paths, groups = make_settings(tmp_path, *rates)
  assert find_sweep(groups).settings[0].values == rates[-1]
  few = make_groups(read_comparable(paths[:-1]))
  shown = [one.values for one in find_sweep(few).settings]
  assert shown == [rates[1], rates[0], rates[2]]
  assert 'with fewer seeds than others' in sections_of(few)[0].text


def test_the_frame_of_a_heat_map_is_around_the_choice(tmp_path):
  settings = [
    {'learning_rate': rate, 'momentum': momentum}
    for rate, momentum in ((0.1, 0.0), (0.1, 0.9), (0.2, 0.9))
  ]
  paths, _ = make_settings(tmp_path, *settings)
  (panel,) = sections_of(make_groups(read_comparable(paths[:-1])))[0].panels
  _, framed = panel.svg.split('class="frame"')
  assert words_of(framed)[0] == '25.0' and '30.0' in words_of(framed)


def test_what_is_no_sweep(tmp_path):
  _, groups = make_settings(tmp_path, {'momentum': 0.1}, {'momentum': 0.2})
  assert find_sweep(groups) is None
  others = [
    make_run(tmp_path / name, name) for name in ('fedavg', 'fedper', 'ditto')
  ]
  assert find_sweep(make_groups(read_comparable(others))) is None
