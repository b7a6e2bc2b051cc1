"""Finished runs -> one page: what is on it, and that it needs nothing else."""

import html
import re

import numpy as np
import pytest
from page_runs import CLASSES, CORRECT, load_command, make_run

from experiments import commandline
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report import page
from fedjax_pfl.report.page.tables import Cell, Column, make_table
from fedjax_pfl.runs import run_dir

PRINTED = {'finetuned': (66.5, 7.25, 'Doe 2031, Table 1', ('Misprinted?',))}
SPACE = '\N{NO-BREAK SPACE}'
UNSEEN = {'std': 2.0, 'worst_decile': 30.0, 'num_clients': 3}


def sections(text):
  """Return {title: HTML} of the sections of a page."""
  _, *rest = re.split(r'<h2>(.*?)</h2>', text)
  return dict(zip(rest[::2], rest[1::2], strict=True))


def rows(text):
  """Return every row of a piece of HTML: its cells with bars between them."""
  return [
    ' | '.join(
      ' '.join(re.sub('<[^>]*>', ' ', cell).split())
      for cell in re.findall(r'<td.*?>(.*?)</td>', row, re.DOTALL)
    )
    for row in re.findall(r'<tr>(.*?)</tr>', text, re.DOTALL)
  ]


def last_table(paths):
  *_, text = sections(page.render(paths))['Summary'].split('<table')
  return text


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('runs')


@pytest.fixture(scope='module')
def runs(folder):
  """Return two methods, one of them with two seeds."""
  return [
    make_run(folder / 'a'),
    make_run(folder / 'b0', 'fedbabu'),
    make_run(folder / 'b1', 'fedbabu', seed=1),
  ]


@pytest.fixture(scope='module')
def two(runs):
  return page.render(runs, {runs[0]: PRINTED})


# Of every section, in their order, what its words or its rows hold.
NUMBERS = {
  'Summary': [
    # Means of 10, 20, 30, 40 and of 90, 80, 70, 30; one of four lost.
    'FedAvg | 25.00 ± 11.18 | 67.50 ± 22.78 published 66.50 ± 7.25 (+1.00) '
    '| +42.50 | 30.00 | 25 % | 31.25',
    '| 25.00 ± 11.18 2 seeds: 25.00 to 25.00 |',
    'Published: Doe 2031, Table 1; in brackets',
    '>Misprinted?<',  # it concerns all that is printed
  ],
  'Learning': [
    '<strong>Initial accuracy over rounds</strong>',
    '<strong>Initial accuracy over bytes</strong>',
    '<strong>Server accuracy over rounds</strong>',
    '<title>FedBABU, 4: 27.0 (25.0 to 29.0)</title>',
    '<title>FedAvg, 6: 25.0</title>',  # MB of two lines
    'class="band c1"',
  ],
  'Before and after personalisation': ['views compared: initial and finetuned'],
  'What each client gained or lost': [
    '3 of 4 clients gained, 1 lost; median +50.0.',
    '<title>client 3: 40.0 to 30.0 (-10.0)</title>',
    '<title>seed 1, client 0: 10.0 to 90.0 (+80.0)</title>',
  ],
  'Fine-tuning': [
    '<title>FedAvg, 0: 25.0</title>',
    '<title>FedAvg, 1: 40.0</title>',
    '<title>FedAvg, 5: 67.5</title>',
    '<title>FedAvg, 5: 30.0</title>',  # the worst tenth
  ],
  'Examples of the clients': ['client 0: 35 examples of 2 classes'],
  'Cost': ['FedAvg | 4 | 1,000 | 4.0 MB | 2.0 MB | 1.5 MB | 90 s'],
  'All numbers': ['FedAvg | 0 | 0 | 40 | 2 | 10.0 | 90.0 | +80.0'],
  'Settings and provenance': [
    'algorithm | "fedavg" | "fedbabu"',
    '"jax": "',
    'data-1',
  ],
}


def test_the_page_has_all_sections_and_needs_nothing_else(two):
  found = sections(two)
  assert list(found) == list(NUMBERS)
  for section, expected in NUMBERS.items():
    text = html.unescape(found[section])
    for words in expected:
      assert words in text or any(words in row for row in rows(text)), words
  assert '<title>Personalisation on digits</title>' in two
  assert f'FedAvg and FedBABU end highest: 67.5{SPACE}%' in two
  assert not re.search(r'https?:|//\w|url\(|@import', two)
  assert re.findall(r'(?:src|href)="?([^">]*)', two) == ['data:,']
  assert "default-src 'none'" in two
  for words in ('One seed each', 'FedAvg, finetuned: Misprinted?', 'band c0'):
    assert words not in two
  # One division of the images, and a chart for training and testing.
  assert found['Examples of the clients'].count('<svg') == 2


def test_the_best_of_a_column_is_bold_as_it_is_printed(two):
  def bold(section):
    text = sections(two)[section].split('</table>')[0]
    return re.findall(r'<td class="number best"[^>]*>([^<]*)', text)

  assert bold('Cost') == []  # all are equal
  assert bold('All numbers').count('67.50') == 4
  assert '25.00' not in bold('All numbers')
  column = Column('ECE', best='min', digits=3)
  cells = [Cell('0.034', 0.034), Cell('0.031', 0.0311), Cell('0.031', 0.0309)]
  table = make_table('', [column], [[cell] for cell in cells])
  assert [row[0].is_best for row in table.rows] == [False, True, True]


# ---- runs of other kinds


def test_the_lead_names_who_is_first(tmp_path, runs):
  ditto = make_run(tmp_path / 'a', 'ditto')
  less = {**CORRECT, 'finetuned': [8] * 4}
  last = make_run(tmp_path / 'less', 'fedper', views=less)
  for paths, words in (
    ([ditto, *runs[:2]], 'Ditto, FedAvg and FedBABU end highest: 67.5'),
    ([*runs[:2], last], 'FedAvg and FedBABU end highest: 67.5'),
    ([ditto, last], f'Ditto ends highest: 67.5{SPACE}% on average over'),
    ([ditto, last], 'clients, 27.5 points above FedPer.'),
    ([ditto], f'Ditto: 25.0{SPACE}% on average over clients before'),
  ):
    assert words in page.render(paths)


def test_data_of_ones_own_have_the_name_of_their_file(tmp_path):
  paths = [
    make_run(tmp_path / name, seed=seed, dataset='npz', data_dir=f'in/{name}')
    for seed, name in enumerate(['a.npz', 'b.npz'])
  ]
  assert '<title>Personalisation on a.npz</title>' in page.render(paths[:1])
  with pytest.raises(BadInput, match=r"'a.npz \(data\)'.*one dataset"):
    page.render(paths)


def test_of_a_family_of_views_the_best_on_the_tests_is_the_one_after(tmp_path):
  """Not the last, which of SuPerFed's mixtures is the local model alone."""
  correct = {'initial': [2, 4], 'mix_0.5': [18, 18], 'mix_1.0': [10, 10]}
  best = {'mix': {'together': {'view': 'mix_0.5', 'mean': 90.0}}}
  more = {'views': correct, 'classes': CLASSES[:2]}
  run = make_run(tmp_path, 'superfed', **more, more={'test_best_view': best})
  text = page.render([run])
  assert '90.00 ± 0.00' in text and '+75.00' in text
  assert 'mix_0.5 of SuPerFed is chosen by the tests' in text


def test_the_axis_of_unlike_numbers_names_neither(tmp_path, runs):
  other = make_run(tmp_path / 'a', 'fedprox')
  file = tmp_path / 'a' / 'metrics.jsonl'
  file.write_text(file.read_text().replace('initial/', 'x/'))
  learning = sections(page.render([runs[0], other]))['Learning']
  chart = learning.partition('<svg')[2].partition('</svg>')[0]
  assert '>accuracy, %<' in chart and 'accuracy of the clients' not in chart


def test_a_method_with_one_view_and_one_client(tmp_path):
  one = {'views': {'personal': [9]}, 'classes': [[1, 0, 2]]}
  parts = sections(page.render([make_run(tmp_path, 'local_only', **one)]))
  assert not parts.keys() & {'What each client gained or lost', 'Fine-tuning'}
  assert '| – | 45.00 ± 0.00 |' in rows(parts['Summary'])[1]


def test_a_run_of_an_earlier_version_and_one_without_a_number(tmp_path):
  path = make_run(tmp_path / 'a', classes=None)
  (tmp_path / 'a' / 'metrics.jsonl').write_text('{"round": 1, "loss": 2.0}\n')
  parts = sections(page.render([path]))
  partition, learning = parts['Examples of the clients'], parts['Learning']
  assert 'Not recorded by runs of an earlier version: FedAvg.' in partition
  assert '<svg' not in partition
  assert 'These runs were not evaluated during their rounds' in learning
  assert '| – | – | – | – |' in rows(parts['Cost'])[1]
  path = make_run(tmp_path / 'b', tests=0, classes=np.zeros((4, 3), int))
  assert 'No client has an accuracy.' in page.render([path])


def test_names_are_text_and_nothing_else(tmp_path):
  hostile = '<script>alert(1)</script>"\'><img src=x onerror=y>'
  more = {'dataset': hostile, hostile: hostile}
  path = make_run(tmp_path / '<b>run', hostile, **more)
  printed = {'initial': (1.0, None, hostile, [hostile])}
  text = page.render([path], {path: printed})
  assert not any(tag in text for tag in ('<script>alert', '<img', '<b>run'))
  assert text.count('&lt;script&gt;alert(1)') > 5


def test_settings_of_one_method_differ_in_dash_and_not_in_colour(folder, runs):
  more = [make_run(folder / 'c', shards_per_client=5), make_run(folder / 'd')]
  again = [runs[0], f'{folder}/d/../a']  # a directory is read once
  text = page.render([runs[0], *more, *again])
  names = [row.split(' | ')[0] for row in rows(sections(text)['Summary'])[1:]]
  assert len({*names}) == 3 and names[1] == 'FedAvg, shards_per_client=5'
  colours = re.findall(r'\.c\d+\{--c:(.*?)\}', text)
  assert colours == ['#0072B2', '#317DBA']  # light, dark
  dashes = re.findall(r'sample c0".*?stroke-dasharray="(.*?)"', text)
  assert len(set(dashes)) == 2  # beside the solid line


def test_many_clients_stay_legible(tmp_path):
  classes = np.random.default_rng(0).integers(0, 9, (2000, 100))
  views = {view: correct * 500 for view, correct in CORRECT.items()}
  more = {'views': views, 'classes': classes}
  paths = [make_run(tmp_path / f'{seed}', seed=seed, **more) for seed in (0, 1)]
  text = page.render(paths)
  assert 'Drawn: 120 of 2,000 clients, evenly spaced.' in text
  assert 'Too many clients for a table' in text
  assert 'class="density"' in text and len(text) < 1_000_000


def chosen_by_validation(number, view, mean, family='finetuned'):
  """Return what result.json has where validation chose a round."""
  last, there = {'mean': 60.0, 'std': 3.0}, {'mean': mean, 'std': 5.0}
  choice = {'round': number, 'view': view, 'validation_accuracy': mean + 2}
  best = {'together': {'mean': 68.5, 'std': 1.0}}
  return {
    'select': 'validation',
    'last': {'round': 4, 'view': 'finetuned', 'views': {'finetuned': last}},
    'validation': {**choice, 'views': {view: there}},
    'test_best': {family: best},
  }


def test_the_page_shows_the_rounds_that_may_be_chosen(tmp_path, runs):
  several = chosen_by_validation(2, 'finetuned_1', 61.0)
  other = chosen_by_validation(4, 'finetuned', 63.0)
  alone = chosen_by_validation(2, 'finetuned', 59.0, 'initial')
  paths = [
    make_run(tmp_path / '0', more=several),
    make_run(tmp_path / '1', seed=1, more=other),
    make_run(tmp_path / '2', 'fedbabu', more=alone),
    make_run(tmp_path / '3', 'fedrep'),  # without a choice
  ]
  text = last_table(paths)
  assert 'The round by validation' in text
  assert rows(text)[1:] == [
    'FedAvg | 60.00 ± 3.00 2 seeds: 60.00 to 60.00 '
    '| 62.00 ± 5.00 2 seeds: 61.00 to 63.00 '
    '| 68.50 ± 1.00 2 seeds: 68.50 to 68.50 '
    '| 2, finetuned_1; 4, finetuned | 64.00 | validation',
    'FedBABU | 60.00 ± 3.00 | 59.00 ± 5.00 | – | 2, finetuned | 61.00 '
    '| validation',
  ]
  assert 'by validation' not in last_table(runs)


def test_the_page_has_unseen_clients_beside_those_who_took_part(tmp_path, runs):
  paths = []
  for seed in (0, 1):
    unseen = {
      'initial': {**UNSEEN, 'mean': 20.0 + 2 * seed},
      'finetuned': {**UNSEEN, 'mean': 55.0 + 10 * seed},
    }
    more = {'unseen': unseen}
    paths.append(make_run(tmp_path / f'{seed}', seed=seed, more=more))
  text = last_table([*paths, runs[1]])
  assert 'Clients who came after training' in text
  assert rows(text)[1:] == [
    'FedAvg | 25.00 | 67.50 | 21.00 | 60.00 | -7.50 | 30.00 | 30.00 | 3'
  ]
  assert 'came after training' not in last_table(runs)


# ---- the command


@pytest.fixture
def command(monkeypatch):
  """Return the command as a function of its arguments."""
  main, file = load_command(monkeypatch, 'report.py')
  parse = commandline.parse_words

  def run(*words):
    main(parse([file, *words], ['out'], 'run directories')[1])

  return run


def test_the_command_writes_a_page_and_nothing_else(command, tmp_path):
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
    ([f'{tmp_path}/begun', out], 'a run directory that holds result.json'),
    ([run, other, out], 'expected one or more runs on one dataset'),
    ([run, '--out=x.pdf'], "out: got 'x.pdf', expected a file name that ends"),
    ([run, f'--out={tmp_path}'], 'expected a file name that ends in .html'),
    ([run, f'--out={file}/x.html'], 'expected a file that can be written'),
  ):
    with pytest.raises(BadInput) as caught:
      command(*arguments)
    message = str(caught.value)
    parts = ('got ', ', expected ', '. Choices: ', '. Likely cause: ', words)
    assert all(part in message for part in parts), message
  assert not list(tmp_path.rglob('*.html'))
