"""The page and the tables of boards that were made of numbers."""

import re
from html import unescape

import numpy as np
import pytest
from helpers import read_rows, refused

from configs.leaderboard import load_form
from fedjax_pfl.compare import protocol
from fedjax_pfl.results.page import board_page as page
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import (
  METHOD,
  REFERENCE,
  Choice,
  Costs,
  Counts,
  Entry,
)
from fedjax_pfl.results.statistics.board import make_board, sentences
from fedjax_pfl.results.tables import board_tables as tables

S, K, TESTS = 3, 20, 5000
COSTS = (Costs(1200.0, 3000123.0, 4e6, 2.5),) * S


def counts(percent):
  """Return counts of these accuracies, to a fiftieth of a point."""
  correct = np.rint(percent * TESTS / 100).astype(int)
  return Counts(correct, np.full(correct.shape, TESTS))


def make_entry(method, mean, *, spread=0.0, before=None, **changes):
  """Return an entry whose clients differ from `mean` by a pattern of their own.

  The pattern is that of all methods; `spread` is what pairs differ by.
  """
  pattern = 10 * np.cos(np.arange(S * K)).reshape(S, K)
  pattern -= pattern.mean()
  own = np.random.default_rng(len(method)).normal(size=(S, K))
  after = counts(mean + pattern + spread * (own - own.mean()))
  first = None if before is None else counts(before + pattern)
  choice = Choice({'learning_rate': 0.03}, 'finetuned', 91.0, ())
  return Entry(method, METHOD, choice, (0, 1, 2), first, after, COSTS)._replace(
    **changes
  )


def make_entries():
  return [
    make_entry('fedavg', 80, before=55),
    make_entry('local_only', 78, spread=1),
    make_entry('fedrep', 84, spread=1, before=70)._replace(
      choice=Choice(
        {'learning_rate': 0.003}, 'finetuned', 9.5, ('learning_rate',)
      )
    ),
    make_entry('fedbabu', 84.1, spread=2, before=60),
    make_entry('ditto', 77.9, spread=6, before=55),
    make_entry('per_fedavg', 60, spread=1, before=50),
    make_entry(
      'centralized', 1, kind=REFERENCE, after=counts(np.full((S, 1), 97.5))
    ),
    Entry('pfedme', METHOD, None, obstacle='diverged with every rate'),
  ]


@pytest.fixture(scope='module')
def about():
  return protocol.about(load_form('digits'))


@pytest.fixture(scope='module')
def boards(about):
  return [make_board(about, name, make_entries()) for name in ('s=2', 's=5')]


@pytest.fixture(scope='module')
def html(about, boards):
  return page.render(about, boards)


def test_sentences_name_who_is_where(boards):
  best, fedavg, local, obstacle, ends = sentences(boards[0])
  assert best == (
    'Highest: FedBABU, 84.1\N{NO-BREAK SPACE}% on average over clients after '
    'personalisation; not distinguishable from it: FedRep, Ditto.'
  )
  assert fedavg == (
    'Against FedAvg, above: FedBABU (+4.1), FedRep (+4.0); '
    'below: Local only (-2.0), Per-FedAvg (-20.0); not distinguishable: '
    'Ditto (-2.1).'
  )
  assert local.startswith('Against Local only, above: FedBABU (+6.1), ')
  assert obstacle == 'pFedMe diverged with every rate.'
  assert ends == (
    'The choice is the lowest or the highest value that was tried for 1 of 8 '
    'methods: FedRep (learning_rate).'
  )


def test_a_method_that_diverged_counts_in_holms_family(about):
  """Two baselines and four methods: 6 comparisons, and 4 without it."""
  given = ('fedavg', 80, 0), ('local_only', 78, 0.1), ('fedrep', 80, 0.1)
  entries = [make_entry(name, mean, spread=own) for name, mean, own in given]
  every = [*entries, Entry('pfedme', METHOD, None, obstacle='diverged')]
  boards = [make_board(about, 's=2', found) for found in (every, entries)]
  for name in 'vs_fedavg_p', 'vs_fedavg_p_within':
    with_it, without = (
      min(row[name] for row in tables.rows_of(board) if row[name] is not None)
      for board in boards
    )
    assert with_it == pytest.approx(without * 6 / 4) and with_it < 0.05


def test_page_is_whole_and_says_what_the_numbers_say(about, boards, html):
  all_ = len(about.methods)
  text = ' '.join(unescape(re.sub(r'<[^>]+>', ' ', html)).split())
  for words in (
    f'{all_} methods on digits with 20 clients',
    # What was made is less than the form has.
    f'Not finished: s=2 has 8 of {all_} methods. Not finished: s=5 has 8 of '
    f'{all_} methods. Not finished: Dir(0.1) has 0 of {all_} methods.',
    'Highest: FedBABU, 84.1 %',
    'Minus FedAvg',
    'Minus Local only',
    'learning_rate: an end of the grid',
    'one client has all data; 97.5 %',
    'pFedMe diverged with every rate',
    'tuned with the same number of trainings: 3 settings',
    'No test reaches a choice',
  ):
    assert words in text, words
  row = tables.rows_of(boards[0])[4]
  ends = f'{row["vs_fedavg_low"]:+.2f} to {row["vs_fedavg_high"]:+.2f}'
  assert text.count(ends) == 4  # of two partitions, in table and chart
  assert 'http' not in re.sub(r'http-equiv', '', html)


@pytest.fixture
def written(about, tmp_path):
  """Return the page that was written of two partitions."""
  path = tmp_path / 'a' / 'digits_seeds_0_1_2.html'
  place = about.methods.index
  entries = sorted(make_entries(), key=lambda one: place(one.method))
  found = dict.fromkeys(('s=2', 's=5'), entries)
  page.write(found, about, path)
  return path


def test_a_table_that_misses_methods_says_so(about, written):
  words = f'Not finished: s=5 has 8 of {len(about.methods)} methods.'
  for suffix in ('.md', '.tex'):
    assert words in written.with_suffix(suffix).read_text()


def test_the_table_has_every_number(written):
  rows = read_rows(written.with_suffix('.csv'))
  assert len(rows) == 2 * 8
  row = next(row for row in rows if row['method'] == 'fedrep')
  shown = {
    **{'partition': 's=2', 'kind': 'method', 'seeds': '0 1 2'},
    **{'before': '70', 'after': '84', 'vs_fedavg_verdict': 'above'},
    **{'gradients': '1200', 'bytes_up': '3000123', 'learning_rate': '0.003'},
  }
  for name, value in shown.items():
    assert row[name] == value or float(row[name]) == pytest.approx(
      float(value), abs=0.01
    )
  assert float(row['vs_fedavg_low']) < 4 < float(row['vs_fedavg_high'])
  kinds = {row['method']: row['kind'] for row in rows}
  assert kinds['local_only'] == 'baseline'
  assert kinds['centralized'] == 'reference'
  diverged = next(row for row in rows if row['method'] == 'pfedme')
  assert diverged['after'] == '' and 'diverged' in diverged['obstacle']


def test_all_files_come_again_from_the_counts_alone(written, tmp_path):
  (counts_file,) = stored_counts.files_of(written.parent)
  again = tmp_path / 'b' / written.name
  about, found = stored_counts.read([counts_file])
  page.write(found, about, again)
  names = {path.name for path in written.parent.iterdir()}
  assert {f'{written.stem}{one}' for one in page.FORMATS} < names
  for name in names - {f'{written.stem}.png'}:
    one, other = (path.parent / name for path in (written, again))
    assert one.read_bytes() == other.read_bytes(), name


def test_shards_together_are_the_whole(about, written, tmp_path):
  entries = make_entries()
  for at in (0, 1):
    found = dict.fromkeys(('s=2', 's=5'), entries[at::2])
    name = f'{written.stem}_counts_{at + 1}_of_2.csv'
    page.write(found, about, tmp_path / 'b' / name)
  files = stored_counts.files_of(tmp_path / 'b')
  _, found = stored_counts.read(files)
  _, whole = stored_counts.read(stored_counts.files_of(written.parent))
  assert repr(found) == repr(whole)


def test_counts_of_many_clients_are_read_again(about, tmp_path):
  many = Counts(*np.full((2, 1, 70_000), 5))
  entry = make_entry('fedavg', 80, seeds=(0,), costs=COSTS[:1], after=many)
  stored_counts.write({'s=2': [entry]}, about, tmp_path / 'x_counts.csv')
  _, found = stored_counts.read([tmp_path / 'x_counts.csv'])
  assert np.array_equal(found['s=2'][0].after.correct, many.correct)


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    (',method,0,', ',method,1,', 'a seed twice'),
    (' 5000', ' 3', 'right answers are not from 0 to the number'),
    ('partition,', 'part,', 'KeyError'),
    ('ditto', 'mine.py:Mine', 'methods that the JSON has not'),
    ('s=5,pfedme', 's=2,pfedme', 'a seed twice'),
    (r'\ns=.*', '\n', 'no row, or methods'),
  ],
)
def test_counts_that_do_not_fit_are_refused(written, old, new, words):
  (path,) = stored_counts.files_of(written.parent)
  text = re.sub(old, new, path.read_text(), count=1, flags=re.DOTALL)
  path.write_text(text)
  assert words in refused(stored_counts.read, [path])


def test_tables_mark_the_best_and_its_peers(boards):
  text = tables.as_latex(boards[:1], ['100 % alike'])
  assert text.count(r'\textbf') == 3  # FedBABU, FedRep and Ditto
  line = next(line for line in text.splitlines() if line.startswith('Per-Fed'))
  assert line.count(' & ') == 7 and line.endswith(r' \\')
  assert '$-$20.00' in line and ' & 49.55 & ' in line  # of the lowest client
  assert r'60.00 $\pm$ 0.' in line  # over seeds
  assert r' & Worse than alone \\' in text and r' & 100 \%' in line
  assert r'\toprule' in text and '% 100 % alike' in text
  # A paragraph to paste, with what it cites.
  paragraph = next(line for line in text.splitlines() if line[0] != '%')
  for words in (
    r'FedBABU~\cite{fedbabu}, ',
    ' methods on digits with 20 clients, by fedjax\\_pfl ',
    'tuned with the same number of trainings: 3 settings',
    'seeds: 0, 1, 2;',
    'by Holm over all comparisons',
  ):
    assert words in paragraph, words
  assert '% @inproceedings{fedbabu,' in text.splitlines()
  shown = tables.as_markdown(boards[:1], [])
  assert shown.count('**') == 6 and '| Local only (baseline) | – |' in shown


def test_names_stay_text(about):
  """They may be those of somebody else's counts."""
  entries = [make_entries()[0], make_entry(r'\input{x}^~<img src=x>', 90)]
  other = about._replace(baselines=('fedavg',))
  board = make_board(other, 'a\n\\input{y}', entries)
  text = tables.as_latex([board], ['b\n\\input{z}'])
  lines = [line.partition('%')[0] for line in text.splitlines()]
  assert r'\textbackslash{}input\{x\}\text' in text
  assert not any(r'\input' in line for line in lines)
  assert '&lt;img src=x' in (shown := tables.as_markdown([board], ['<b>']))
  assert '<' not in shown


def test_a_stopped_repetition_replaces_no_longer_table(about, tmp_path):
  entries, path = make_entries(), tmp_path / 'board.html'
  methods = tuple(entry.method for entry in entries)

  def write(*names, of=('s=2', 's=5')):
    own = about._replace(methods=methods, partitions=of)
    page.write(dict.fromkeys(names, entries), own, path)
    return len(read_rows(path.with_suffix('.csv')))

  assert write('s=2') == 8 and write('s=2', 's=5') == 16
  assert write('s=2') == 16
  assert write('s=2', of=('s=2',)) == 8  # all of another form


def test_equivalent_means_are_said_to_be_within_a_point(about):
  entries = make_entries()[:2]
  near = make_entry('fedprox', 80.3, spread=0.5, before=55)
  board = make_board(about, 's=2', [*entries, near])
  words = 'within one point: FedProx (+0.3).'
  assert words in sentences(board)[1]


@pytest.mark.parametrize('number', [1, 2])
def test_no_verdict_on_one_method_or_of_one_seed(about, number):
  entries = [make_entry('fedavg', 80), make_entry('local_only', 70)][:number]
  cut = lambda counts: Counts(counts.correct[:1], counts.total[:1])
  entries = [one._replace(after=cut(one.after)) for one in entries]
  own = about._replace(baselines=('fedavg',))
  first, *others = sentences(make_board(own, 's=2', entries))
  assert others == [] and 'distinguishable' not in first
  assert 'Highest' not in first and 'FedAvg, 80.4' in first
  table = tables.as_latex([make_board(own, 's=2', entries)], [])
  assert r'\textbf' not in table


def metric(method, mean, sign=1):
  """Return an entry with a metric that two of twenty clients have not."""
  entry = make_entry(method, 80 + sign * 10 * mean)
  values = np.tile(np.linspace(-0.1, 0.1, K), (S, 1))
  values[:, [3, 16]] = np.nan
  values += mean + np.array([[-0.01], [0.0], [0.01]])
  after = entry.after._replace(others={'gaps': values})
  return entry._replace(after=after)


@pytest.mark.parametrize(('better', 'best'), [('max', 0.4), ('min', 0.2)])
def test_a_metric_of_the_user_is_compared_by_the_same_rule(
  about, tmp_path, better, best
):
  own = about._replace(
    methods=('fedavg', 'local_only', 'ditto'),
    baselines=('fedavg',),
    measures=(('accuracy', 'max'), ('gaps', better)),
  )
  values = {'fedavg': 0.4, 'local_only': 0.3, 'ditto': 0.2}
  found = {'s=2': [metric(name, mean) for name, mean in values.items()]}
  path = tmp_path / 'a' / 'own.html'
  page.write(found, own, path)
  board = make_board(own, 's=2', found['s=2'])
  (name,) = (name for name, mean in values.items() if mean == best)
  assert board.best(own.measured[1]) == {name}
  assert board.entries[0].method == 'fedavg'  # by accuracy
  text = f'{best:g} ± 0.01'
  assert f'{text} *' in tables.tables_of(board)[0].as_text()
  assert f'**{text}**' in path.with_suffix('.md').read_text()
  assert (
    rf'\textbf{{{best:g} $\pm$ 0.01}}' in path.with_suffix('.tex').read_text()
  )
  assert f'{text}</' in path.read_text() and '>gaps<' in path.read_text()
  gap = {row['method']: row for row in read_rows(path.with_suffix('.csv'))}
  assert float(gap['ditto']['vs_fedavg_gaps_mean']) == pytest.approx(-0.2)
  assert gap['ditto']['vs_fedavg_gaps_verdict'] == 'below'
  (line,) = (one for one in sentences(board) if one.startswith('gaps. '))
  end = {'max': 'Highest: FedAvg, 0.4', 'min': 'Lowest: Ditto, 0.2'}[better]
  assert f'gaps. {end} on average' in line and line.endswith('defined: 2.')
  turned = make_board(
    own._replace(measures=own.measures[::-1]), 's=2', found['s=2']
  )
  assert turned.entries[0].method == name  # by the metric
  worst = best + {'max': -0.1, 'min': 0.1}[better]
  assert tables.rows_of(turned)[0]['after_lowest_client'] == pytest.approx(
    worst
  )
  assert sentences(turned)[1].startswith('Accuracy. Highest: FedAvg')
  counts = path.with_name('own_counts.csv')
  again = tmp_path / 'b' / 'own.html'
  page.write(*stored_counts.read([counts])[::-1], again)
  for file in path.parent.iterdir():
    assert file.read_bytes() == (again.parent / file.name).read_bytes()


def test_labels_that_are_numbers_have_lowest_clients_of_their_measure(
  about, tmp_path
):
  """No answer is right: worst tenth and lowest client are those of RMSE."""
  own = about._replace(measures=(('rmse', 'min'),))
  entries = []
  for at, name in enumerate(own.methods):
    entry = make_entry(name, 50)
    values = np.tile(np.linspace(1, 120, K), (S, 1)) + at  # above 100, too
    after = entry.after._replace(
      correct=np.zeros_like(entry.after.total), others={'rmse': values}
    )
    entries.append(entry._replace(before=None, after=after))
  path = tmp_path / 'own.html'
  page.write({'s=2': entries}, own, path)
  counts = stored_counts.files_of(tmp_path)
  again, found = stored_counts.read(counts)
  row = tables.rows_of(make_board(again, 's=2', found['s=2']))[0]
  assert row['after_lowest_client'] == pytest.approx(120)
  assert row['after'] == pytest.approx(60.5)
  line = path.with_suffix('.md').read_text().partition('Lowest')[2]
  assert '| 120 |' in line
