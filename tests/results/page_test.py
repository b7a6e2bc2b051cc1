"""Finished runs -> one page: what is on it, and that it needs nothing else."""

import html
import json
import re
from types import SimpleNamespace

import finished_runs
import numpy as np
import pytest
from page_runs import CORRECT, make_run
from run_directories import refused
from user_commands import load_command

from experiments import commandline, overview
from fedjax_pfl.results.page import render as page
from fedjax_pfl.results.page import tables
from fedjax_pfl.runs import run_dir

PRINTED = {
  'finetuned': (66.5, 7.25, 'Doe 2031, Table 1', ('Misprinted?',)),
  'templates': (1.0, None, 'Table 2', ()),  # not shown
}
SPACE = '\N{NO-BREAK SPACE}'


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
    '| +42.50 | 30.00 | 30.00 | 25 % | 31.25',
    '| 25.00 ± 11.18 2 seeds: 25.00 to 25.00 |',
    'Published: Doe 2031, Table 1; in brackets',
    '>Misprinted?<',  # it concerns all that is printed
  ],
  'Learning': [
    '<strong>Initial accuracy over rounds</strong>',
    '<strong>Initial accuracy over bytes</strong>',
    '<strong>Initial accuracy over simulated time</strong>',
    'FedAvg, 40: 25.0<',  # four rounds of ten seconds
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
  assert 'personalisation. They share no two seeds on the same data' in two
  assert not re.search(r'https?:|//\w|url\(|@import', two)
  assert re.findall(r'(?:src|href)="?([^">]*)', two) == ['data:,']
  assert "default-src 'none'" in two
  # One division of the images, and a chart for training and testing.
  assert found['Examples of the clients'].count('<svg') == 2


# ---- runs of other kinds


def test_a_winner_needs_seeds_that_tell_it_apart(tmp_path, runs):
  """With each seed FedPer is below FedAvg; FedRep is below it or above."""
  behind = {'fedavg': (0, 0, 0), 'fedper': (4, 4, 5), 'fedrep': (2, 0, -1)}
  every = [
    make_run(
      tmp_path / f'{name}{seed}',
      name,
      views={**CORRECT, 'finetuned': np.arange(10, 18, 2) - less},
      seed=seed,
    )
    for name, seeds in behind.items()
    for seed, less in enumerate(seeds)
  ]
  for given, words in (
    (runs[:1], f'personalisation, 25.0{SPACE}% before it.'),
    (
      [every[0], every[3]],
      f'FedPer, 45.0{SPACE}% to FedAvg, 65.0{SPACE}% on av',
    ),
    (every[:6], '21.7 points above FedPer (95 % interval 14.5 to 28.8), and'),
    (every, 'personalisation; not distinguishable from it: FedRep.'),
    (every[:7], 'from all. Not compared, with one shared seed or none: 1.'),
  ):
    assert words in page.render(given)
  summary = sections(page.render(every))['Summary']
  assert re.findall(r' best"[^>]*>([\d.]+)', summary) == ['65.00', '63.33']
  assert 'Holm decides over all pairs' in summary
  assert '14.50 to 28.84' in summary and 'not distinguishable<' in summary
  text = overview.as_table(every)
  assert text.count(' * ') == 2 and ' 21.67 ' in text
  assert overview.as_table([every[0], every[3]]).endswith('names no winner.')


def test_five_of_few_classes_are_all():
  for number, is_few in ((4, True), (10, False)):
    clients = SimpleNamespace(train_classes=np.ones((3, number)))
    group = SimpleNamespace(first=SimpleNamespace(clients=clients))
    assert tables.has_few_classes([group]) == is_few


def test_who_is_worse_than_alone_on_the_same_data(tmp_path, runs):
  assert 'Worse than alone' not in page.render(runs)  # nor a note on it
  personal = {'personal': [10, 17, 14, 20]}  # FedAvg: 18, 16, 14, 6
  alone = make_run(tmp_path / 'alone', 'local_only', views=personal)
  row, other = rows(sections(page.render([runs[0], alone]))['Summary'])[1:]
  assert row.endswith('| 30.00 | 25 % | 50 % | 31.25')
  assert other.endswith('| 50.00 | – | – | 31.25')  # its lowest client: 50
  table = overview.as_table([runs[0], alone])
  assert re.search(r'FedAvg .* 30.00 +25 % +50 % +31.25$', table, re.MULTILINE)
  later = make_run(tmp_path / 'later', 'local_only', views=personal, seed=9)
  assert overview.as_table([runs[0], later]).count('than alone') == 0


@pytest.mark.parametrize('earlier', [{}, {'worst_decile': 30.0}])
def test_a_worst_tenth_of_few_tests_is_not_shown(
  tmp_path, monkeypatch, earlier
):
  """Not either where an earlier version wrote it."""
  summarise = finished_runs.summarise
  monkeypatch.setattr(
    finished_runs, 'summarise', lambda *args: summarise(*args) | earlier
  )
  views = {'initial': [3, 4]}
  path = make_run(tmp_path / 'a', tests=9, views=views, classes=None)
  text = page.render([path])
  assert 'No worst tenth: a client has fewer than 50 tests' in text
  assert 'Worst tenth' not in text and 'and worst tenth' not in text
  assert 'worst tenth' not in overview.as_table([path])


def test_a_run_of_an_earlier_version(tmp_path):
  more = {'batch_statistics': True}
  path = make_run(tmp_path / 'a', classes=None, more=more)
  assert 'images that are tested together' in page.render([path])
  (tmp_path / 'a' / 'metrics.jsonl').write_text('{"round": 1, "loss": 2.0}\n')
  parts = sections(page.render([path]))
  partition, learning = parts['Examples of the clients'], parts['Learning']
  assert 'Not recorded by runs of an earlier version: FedAvg.' in partition
  assert '<svg' not in partition
  assert 'These runs were not evaluated during their rounds' in learning
  assert '| – | – | – | – |' in rows(parts['Cost'])[1]


def test_errors_are_told_as_errors(tmp_path):
  """Of RMSE lower is better: no accuracy, no points, no classes."""
  views = {'initial': [2, 4, 6, 8], 'finetuned': [1, 3, 2, 9]}
  path = make_run(tmp_path / 'a', loss='squared', views=views, classes=None)
  text, parts = page.render([path]), sections(page.render([path]))
  assert 'RMSE. FedAvg, 18.75 on average' in text
  assert 'Examples of the clients' not in parts
  assert 'of the client who does worst' in parts['All numbers']
  assert 'test accuracy' not in ''.join(parts.values()).lower()
  assert 'points' not in ''.join(parts.values())
  assert 'client 3: 40 to 45 (-5)' in parts['What each client gained or lost']
  last = rows(parts['All numbers'])[-1].split(' | ')
  assert last[-3:] == ['40', '45', '-5']  # the last client lost
  row = overview.as_table([path]).splitlines()[2]
  assert ' +6.25 ' in row and ' 25 %' in row


def test_bytes_are_whole_where_seeds_log_other_rounds(tmp_path):
  """By round 4 one has sent 6 MB, the other 4 MB, one in each round."""
  paths = [make_run(tmp_path / f'{seed}', seed=seed) for seed in (0, 1)]
  line = {'bytes_up': 1e6, 'bytes_down': 0, 'initial/accuracy': 29.0}
  lines = [json.dumps({'round': at, **line}) for at in (1, 2, 3, 4)]
  (tmp_path / '1' / 'metrics.jsonl').write_text('\n'.join([*lines, '']))
  learning = sections(page.render(paths))['Learning']
  assert '<title>FedAvg, 5: 27.0 (25.0 to 29.0)</title>' in learning


def test_names_are_text_and_nothing_else(tmp_path):
  hostile = '<script>alert(1)</script>"\'><img src=x onerror=y>'
  more = {'dataset': hostile, hostile: hostile}
  path = make_run(tmp_path / '<b>run', hostile, **more)
  printed = {'initial': (1.0, None, hostile, [hostile])}
  text = page.render([path], {path: printed})
  assert not any(tag in text for tag in ('<script>alert', '<img', '<b>run'))
  assert text.count('&lt;script&gt;alert(1)') > 5


def test_many_clients_stay_legible(tmp_path, monkeypatch):
  """Their file, megabytes of a million, is read once."""
  load, read = run_dir.load_clients, []
  counted = lambda path: read.append(str(path)) or load(path)
  monkeypatch.setattr(run_dir, 'load_clients', counted)
  classes = np.random.default_rng(0).integers(0, 9, (2000, 100))
  views = {view: correct * 500 for view, correct in CORRECT.items()}
  more = {'views': views, 'classes': classes}
  paths = [make_run(tmp_path / f'{seed}', seed=seed, **more) for seed in (0, 1)]
  text = page.render(paths)
  assert read == paths
  assert 'Drawn: 120 of 2,000 clients, evenly spaced.' in text
  assert 'Too many clients for a table' in text
  assert 'class="density"' in text and len(text) < 1_000_000


def chosen_by_validation(number, view, mean):
  """Return what result.json has where validation chose a round."""
  last, there = {'mean': 60.0, 'std': 3.0}, {'mean': mean, 'std': 5.0}
  choice = {'round': number, 'view': view, 'validation_accuracy': mean + 2}
  best = {'together': {'mean': 68.5, 'std': 1.0}}
  return {
    'select': 'validation',
    'last': {'round': 4, 'view': 'finetuned', 'views': {'finetuned': last}},
    'validation': {**choice, 'views': {view: there}},
    'test_best': {'finetuned': best},
  }


def test_the_page_shows_the_rounds_that_may_be_chosen(tmp_path, runs):
  several = chosen_by_validation(2, 'finetuned_1', 61.0)
  other = chosen_by_validation(4, 'finetuned', 63.0)
  paths = [
    make_run(tmp_path / '0', more=several),
    make_run(tmp_path / '1', seed=1, more=other),
    make_run(tmp_path / '3', 'fedrep'),  # without a choice
  ]
  text = last_table(paths)
  assert rows(text)[1:] == [
    'FedAvg | 60.00 ± 3.00 2 seeds: 60.00 to 60.00 '
    '| 62.00 ± 5.00 2 seeds: 61.00 to 63.00 '
    '| 68.50 ± 1.00 2 seeds: 68.50 to 68.50 '
    '| 2, finetuned_1; 4, finetuned | 64.00 | validation'
  ]
  assert 'by validation' not in last_table(runs)


def test_the_page_has_unseen_clients_beside_those_who_took_part(tmp_path, runs):
  means, more = {'initial': 21.0, 'finetuned': 60.0}, {'num_clients': 3}
  more |= {'std': 2.0, 'worst_decile': 30.0}
  unseen = {view: {**more, 'mean': mean} for view, mean in means.items()}
  path = make_run(tmp_path / 'a', more={'unseen': unseen})
  text = last_table([path, runs[1]])
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
  for arguments, words in (
    ([run], "got 'no --out', expected --out=..., the page"),
    ([f'{tmp_path}/begun', out], 'a run directory that holds result.json'),
    ([run, other, out], 'expected one or more runs on one dataset'),
    ([run, '--out=x.pdf'], "out: got 'x.pdf', expected a file name that ends"),
  ):
    assert words in refused(command, *arguments)
  assert not list(tmp_path.rglob('*.html'))
