"""Finished runs -> one page: what is on it, and that it needs nothing else."""

import functools
import html
import re
import runpy

import numpy as np
import pytest
from absl import flags
from page_runs import CLASSES, CORRECT, make_run

from experiments import commandline
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report import page
from fedjax_pfl.report.finished_runs import read_comparable
from fedjax_pfl.report.page import curve_sections, summary_tables
from fedjax_pfl.report.page.groups import make_groups
from fedjax_pfl.runs import run_dir

SECTIONS = [
  'Summary',
  'Learning',
  'Before and after personalisation',
  'What each client gained or lost',
  'Fine-tuning',
  'Examples of the clients',
  'Cost',
  'All numbers',
  'Settings and provenance',
]
PRINTED = {'finetuned': (66.5, 7.25, 'Doe 2031, Table 1', ('Misprinted?',))}


def sections(text):
  """Return {title: HTML} of the sections of a page."""
  _, *rest = re.split(r'<h2>(.*?)</h2>', text)
  return dict(zip(rest[::2], rest[1::2], strict=True))


def rows(text):
  """Return the cells of every row of a piece of HTML, without tags."""
  return [
    [
      ' '.join(re.sub('<[^>]*>', ' ', cell).split())
      for cell in re.findall(r'<td.*?>(.*?)</td>', row, re.DOTALL)
    ]
    for row in re.findall(r'<tr>(.*?)</tr>', text, re.DOTALL)
  ]


@pytest.fixture(scope='module')
def two(tmp_path_factory):
  """Return the page of two methods, one of them with two seeds."""
  folder = tmp_path_factory.mktemp('runs')
  runs = [
    make_run(folder / 'a'),
    make_run(folder / 'b0', 'fedbabu'),
    make_run(folder / 'b1', 'fedbabu', seed=1),
  ]
  return page.render(runs, {runs[0]: PRINTED})


def test_every_section_is_there(two):
  assert list(sections(two)) == SECTIONS
  assert '<title>Personalisation on digits</title>' in two
  assert 'FedAvg and FedBABU end highest: 67.5\N{NO-BREAK SPACE}%' in two


def test_data_of_ones_own_have_the_name_of_their_file(tmp_path):
  paths = [
    make_run(tmp_path / name, seed=seed, dataset='npz', data_dir=f'in/{name}')
    for seed, name in enumerate(['a.npz', 'b.npz'])
  ]
  assert '<title>Personalisation on a.npz</title>' in page.render(paths[:1])
  with pytest.raises(BadInput, match=r"'a.npz \(data\)'.*one dataset"):
    page.render(paths)


def test_summary_beside_what_is_printed(two):
  summary = sections(two)['Summary']
  _, ours, seeds = rows(summary)
  # Means of 10, 20, 30, 40 and of 90, 80, 70, 30; one of four lost.
  assert ours == [
    'FedAvg',
    '25.00 ± 11.18',
    '67.50 ± 22.78 published 66.50 ± 7.25 (+1.00)',
    '+42.50',
    '30.00',
    '25 %',
    '31.25',
  ]
  assert seeds[1] == '25.00 ± 11.18 2 seeds: 25.00 to 25.00'
  assert 'Published: Doe 2031, Table 1; in brackets' in summary
  assert 'FedAvg, finetuned: Misprinted?' not in summary  # it concerns all
  assert 'Misprinted?' in summary
  assert 'One seed each' not in summary


def test_of_a_family_of_views_the_best_on_the_tests_is_the_one_after(tmp_path):
  """Not the last, which of SuPerFed's mixtures is the local model alone."""
  correct = {'initial': [2, 4], 'mix_0.5': [18, 18], 'mix_1.0': [10, 10]}
  best = {'mix': {'together': {'view': 'mix_0.5', 'mean': 90.0}}}
  run = make_run(
    tmp_path / 'run',
    'superfed',
    views=correct,
    classes=CLASSES[:2],
    more={'test_best_view': best},
  )
  text = page.render([run])
  assert '90.00 ± 0.00' in text and '+75.00' in text
  assert 'mix_0.5 of SuPerFed is chosen by the tests' in text


def test_the_best_of_a_column_is_bold(two):
  cells = re.findall(
    r'<td class="number best"[^>]*>([^<]*)', sections(two)['Cost']
  )
  assert not cells  # all are equal
  numbers = sections(two)['All numbers'].split('</table>')[0]
  bold = re.findall(r'<td class="number best"[^>]*>([^<]*)', numbers)
  assert bold.count('67.50') == 4 and '25.00' not in bold


def test_methods_with_equal_means_are_both_named(tmp_path):
  names = 'fedavg', 'fedbabu', 'ditto'
  runs = [make_run(tmp_path / name, name) for name in names]
  assert 'FedAvg, FedBABU and Ditto end highest: 67.5' in page.render(runs)
  less = {**CORRECT, 'finetuned': [8] * 4}
  last = make_run(tmp_path / 'less', 'fedper', views=less)
  text = page.render([*runs[:2], last])
  assert 'FedAvg and FedBABU end highest' in text and 'points above' not in text


def test_the_axis_of_unlike_numbers_names_neither(tmp_path):
  runs = [make_run(tmp_path / name, name) for name in ('fedavg', 'fedprox')]
  groups = make_groups(read_comparable(runs))
  for line in groups[1].runs[0].metrics:
    del line['initial/accuracy']
  panel, *_ = curve_sections.learning(groups).panels
  assert 'accuracy, %<' in panel.svg
  assert 'accuracy of the clients' not in panel.svg


def test_one_of_two_errors_that_are_printed_differently_is_bold(tmp_path):
  runs = [make_run(tmp_path / name, name) for name in ('fedavg', 'ditto')]
  groups = make_groups(read_comparable(runs))
  for group, ece in zip(groups, (0.034, 0.031), strict=True):
    group.runs[0].result['views']['finetuned']['ece'] = ece
  table = summary_tables.all_views(groups)
  place = [column.name for column in table.columns].index('ECE')
  cells = [row[place] for row in table.rows if row[1].text == 'finetuned']
  marks = [(cell.text, cell.is_best) for cell in cells]
  assert marks == [('0.034', False), ('0.031', True)]


def test_curves_have_a_band_over_seeds(two):
  learning = sections(two)['Learning']
  titles = re.findall(r'<strong>(.*?)</strong>', learning)
  assert titles == [
    'Initial accuracy over rounds',
    'Initial accuracy over bytes',
    'Server accuracy over rounds',
  ]
  assert '<title>FedBABU, 4: 27.0 (25.0 to 29.0)</title>' in learning
  assert '<title>FedAvg, 6: 25.0</title>' in learning  # MB of two lines
  assert learning.count('class="band c1"') == 3
  assert 'class="band c0"' not in learning


def test_fine_tuning_is_drawn_by_epochs(two):
  text = sections(two)['Fine-tuning']
  for words in ('FedAvg, 0: 25.0', 'FedAvg, 1: 40.0', 'FedAvg, 5: 67.5'):
    assert f'<title>{words}</title>' in text
  assert '<title>FedAvg, 5: 30.0</title>' in text  # the worst tenth


def test_the_gain_of_every_client_is_shown(two):
  text = sections(two)['What each client gained or lost']
  assert '3 of 4 clients gained, 1 lost; median +50.0.' in text
  assert '<title>client 3: 40.0 to 30.0 (-10.0)</title>' in text
  assert '<title>seed 1, client 0: 10.0 to 90.0 (+80.0)</title>' in text


def test_cost_partition_and_provenance(two):
  parts = sections(two)
  assert rows(parts['Cost'])[1] == [
    'FedAvg',
    '4',
    '1,000',
    '4.0 MB',
    '2.0 MB',
    '1.5 MB',
    '90 s',
  ]
  assert parts['Examples of the clients'].count('<svg') == 2  # one division
  assert (
    'client 0: 35 examples of 2 classes' in parts['Examples of the clients']
  )
  settings = html.unescape(parts['Settings and provenance'])
  assert '"jax": "' in settings and 'data-1' in settings
  assert ['algorithm', '"fedavg"', '"fedbabu"'] in rows(settings)


def test_the_page_needs_nothing_else(two):
  assert not re.search(r'https?:|//\w|url\(|@import', two)
  assert re.findall(r'(?:src|href)="?([^">]*)', two) == ['data:,']
  assert "default-src 'none'" in two


def test_names_are_text_and_nothing_else(tmp_path):
  hostile = '<script>alert(1)</script>"\'><img src=x onerror=y>'
  path = make_run(
    tmp_path / '<b>run', hostile, dataset=hostile, **{hostile: hostile}
  )
  printed = {path: {'initial': (1.0, None, hostile, (hostile,))}}
  text = page.render([path], printed)
  for piece in ('<script>alert', '<img', '<b>run'):
    assert piece not in text
  assert text.count('&lt;script&gt;alert(1)') > 5


def test_settings_of_one_method_are_told_apart(tmp_path):
  runs = [
    make_run(tmp_path / 'a'),
    make_run(tmp_path / 'b', shards_per_client=5),
    make_run(tmp_path / 'c', log_every=7),  # 'a' again: not a second seed
  ]
  runs += [runs[0], f'{tmp_path}/b/../a']  # the same directory is read once
  text = page.render(runs)
  names = [row[0] for row in rows(sections(text)['Summary'])[1:]]
  assert len(names) == 3 and len(set(names)) == 3
  assert names[1] == 'FedAvg, shards_per_client=5'
  assert re.findall(r'\.c\d+\{--c:(.*?)\}', text) == [
    '#0072B2',
    '#317DBA',
  ]
  dashes = re.findall(r'sample c0".*?stroke-dasharray="(.*?)"', text)
  assert len(set(dashes)) == 2  # beside the solid line


def test_a_method_with_one_view_and_one_client(tmp_path):
  path = make_run(
    tmp_path / 'a',
    'local_only',
    views={'personal': [9]},
    classes=[[1, 0, 2]],
    views_of_config=1,
  )
  text = page.render([path])
  assert 'What each client gained or lost' not in sections(text)
  assert 'Fine-tuning' not in sections(text)
  assert rows(sections(text)['Summary'])[1][1:3] == ['–', '45.00 ± 0.00']


def test_a_run_of_an_earlier_version(tmp_path):
  path = make_run(tmp_path / 'a', classes=None)
  (tmp_path / 'a' / 'metrics.jsonl').write_text('{"round": 1, "loss": 2.0}\n')
  parts = sections(page.render([path]))
  partition = parts['Examples of the clients']
  assert 'Not recorded by runs of an earlier version: FedAvg.' in partition
  assert '<svg' not in partition
  assert (
    'These runs were not evaluated during their rounds.' in parts['Learning']
  )
  assert rows(parts['Cost'])[1][2:6] == ['–'] * 4


def test_a_run_without_a_finite_number(tmp_path):
  path = make_run(tmp_path / 'a', tests=0, classes=np.zeros((4, 3), int))
  assert 'No client has an accuracy.' in page.render([path])


def test_many_clients_stay_legible(tmp_path):
  number = 2000
  classes = np.random.default_rng(0).integers(0, 9, (number, 100))
  classes[7] = 0
  views = {view: correct * 500 for view, correct in CORRECT.items()}
  runs = [
    make_run(tmp_path / f'{seed}', views=views, classes=classes, seed=seed)
    for seed in (0, 1)
  ]
  text = page.render(runs)
  assert 'Drawn: 120 of 2,000 clients, evenly spaced.' in text
  assert 'Too many clients for a table' in text
  assert 'class="density"' in text
  assert len(text) < 1_000_000


# ---- the command


@pytest.fixture
def command(monkeypatch):
  """Return the command as a function of its arguments; its flags are its own.

  Not a process: to start one takes longer than all that is tested.
  """
  values = flags.FlagValues()
  define = functools.partial(flags.DEFINE_string, flag_values=values)
  monkeypatch.setattr(flags, 'DEFINE_string', define)
  monkeypatch.setattr(flags, 'FLAGS', values)
  file = commandline.ROOT / 'experiments' / 'report.py'
  main = runpy.run_path(str(file))['main']
  return lambda *arguments: main(
    *commandline.parse_words(
      [str(file), *arguments], ['out'], 'run directories'
    )
  )


def test_the_command_writes_a_page(command, tmp_path):
  run, out = make_run(tmp_path / 'a'), tmp_path / 'new' / 'page.html'
  before = sorted(path.name for path in (tmp_path / 'a').rglob('*'))
  command(run, f'--out={out}')
  assert 'FedAvg' in out.read_text(encoding='utf-8')
  assert sorted(path.name for path in (tmp_path / 'a').rglob('*')) == before


def test_bad_input_is_a_sentence(command, tmp_path):
  run, out = make_run(tmp_path / 'a'), f'--out={tmp_path / "x.html"}'
  other = make_run(tmp_path / 'b', dataset='cifar10')
  run_dir.open_run(tmp_path / 'begun', {'algorithm': 'fedavg'}, data='d')
  file = tmp_path / 'a' / 'config.json'
  for arguments, words in (
    ([run], "got 'no --out', expected --out=..., the page"),
    ([out], "got 'no word without a flag', expected run directories"),
    ([f'{tmp_path}/c', out], 'expected a run directory that holds result.json'),
    ([f'{tmp_path}/begun', out], 'a run directory that holds result.json'),
    ([run, other, out], 'expected one or more runs on one dataset'),
    ([run, '--out=x.pdf'], "out: got 'x.pdf', expected a file name that ends"),
    ([run, f'--out={tmp_path}'], 'expected a file name that ends in .html'),
    ([run, f'--out={file}/x.html'], 'expected a file that can be written'),
  ):
    with pytest.raises(BadInput) as caught:
      command(*arguments)
    message = str(caught.value)
    for part in ('got ', ', expected ', '. Choices: ', '. Likely cause: '):
      assert part in message, message
    assert words in message, message
  assert not list(tmp_path.rglob('*.html'))


def chosen_by_validation(number, view, mean, **test_best):
  """Return what result.json has where validation chose a round."""
  last = {'finetuned': {'mean': 60.0, 'std': 3.0}}
  return {
    'select': 'validation',
    'last': {'round': 4, 'view': 'finetuned', 'views': last},
    'validation': {
      'round': number,
      'view': view,
      'validation_accuracy': mean + 2,
      'views': {view: {'mean': mean, 'std': 5.0}},
    },
    'test_best': test_best,
  }


def test_the_page_shows_the_rounds_that_may_be_chosen(tmp_path):
  best = {'together': {'mean': 68.5, 'std': 1.0}}
  results = [
    chosen_by_validation(2, 'finetuned_1', 61.0, finetuned=best),
    chosen_by_validation(4, 'finetuned', 63.0, finetuned=best),
    chosen_by_validation(2, 'finetuned', 59.0, initial=best),
  ]
  runs = [
    make_run(tmp_path / '0', more=results[0]),
    make_run(tmp_path / '1', more=results[1], seed=1),
    make_run(tmp_path / '2', 'fedbabu', more=results[2]),
    make_run(tmp_path / '3', 'fedrep'),  # without a choice
  ]
  *_, text = sections(page.render(runs))['Summary'].split('<table')
  assert 'The round by validation' in text
  assert rows(text)[1:] == [
    [
      'FedAvg',
      '60.00 ± 3.00 2 seeds: 60.00 to 60.00',
      '62.00 ± 5.00 2 seeds: 61.00 to 63.00',
      '68.50 ± 1.00 2 seeds: 68.50 to 68.50',
      '2, finetuned_1; 4, finetuned',
      '64.00',
      'validation',
    ],
    [
      'FedBABU',
      *('60.00 ± 3.00', '59.00 ± 5.00', '–', '2, finetuned', '61.00'),
      'validation',
    ],
  ]
  assert 'by validation' not in page.render(runs[3:])
