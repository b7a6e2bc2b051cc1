"""Verdicts of small results, made by hand; and those of our results."""

import re
import shutil
from pathlib import Path

import claim_runs
import numpy as np
import pytest
from claim_runs import judge, judge_file, make_run, state, write_summary
from helpers import refused

from configs.tables.common import load_configs, load_table
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.claims import document, figures, write
from fedjax_pfl.reproduction.claims.entries import load_claims
from fedjax_pfl.reproduction.queue import load_queue
from fedjax_pfl.settings import parse_config

FEW = np.array([50, 60, 70, 80])
MORE = np.array([4, 5, 6, 5])
PAIR = ('fedbabu', 'fedavg')


@pytest.fixture
def folder(tmp_path):
  """Return results in which FedBABU is 5 points above FedAvg."""
  make_run(tmp_path, 'fedbabu', FEW + MORE)
  make_run(tmp_path, 'fedavg', FEW)
  write_summary(tmp_path)
  return tmp_path


def judge_one(folder, *pair, more='', replaced=()):
  """Return the only comparison, and the section of the page."""
  path = state(folder, pair or PAIR, more=more)
  if replaced:
    path.write_text(path.read_text().replace(*replaced))
  verdict = judge_file(folder)
  (one,) = verdict.judged
  return one, document.whole([verdict])


def test_each_verdict(folder):
  make_run(folder, 'fedper', FEW + [-1, 1, -1, 1])
  pairs = [PAIR, ('fedavg', 'fedper'), PAIR[::-1]]
  verdict = judge(folder, *pairs)
  assert [(x.verdict, x.difference.mean) for x in verdict.judged] == [
    ('shown', 5),
    ('not shown', 0),
    ('contradicted', -5),
  ]
  words = '1 of 3 shown, 1 not shown, 1 contradicted; one seed'
  assert document.words_of(verdict) == words
  shutil.rmtree(folder / 'runs' / 'fedper_2_0')
  verdict = judge(folder, *pairs)
  half = verdict.judged[1]
  assert half.verdict == 'half run' and half.difference is None
  words = '1 of 3 shown, 1 contradicted, 1 half run; one seed'
  assert document.words_of(verdict) == words
  line = '| FedAvg > FedPer | FedAvg 65.00 alone, print 55.00 |'
  assert line in document.whole([verdict])
  shutil.rmtree(folder / 'runs')
  (folder / 'summary.csv').unlink()
  (one, *_) = judge(folder, *pairs).judged
  assert one.verdict == 'not run' and not one.measured


def test_a_row_without_its_run_is_compared_unpaired(folder):
  shutil.rmtree(folder / 'runs' / 'fedavg_2_0')
  one, text = judge_one(folder)
  error = np.sqrt((np.var(FEW + MORE) + np.var(FEW)) / 4)
  ends = 5 - 1.96 * error, 5 + 1.96 * error
  assert one.difference[1:3] == pytest.approx(ends, abs=1e-3)
  assert one.verdict == 'not shown'  # paired, it was shown
  assert 'Of FedAvg only the mean and the deviation are left' in text
  assert '| 0 | `' in text and 'not kept |' in text


def test_seeds_in_common_are_compared(folder):
  for seed in (1, 2):
    make_run(folder, 'fedbabu', FEW + MORE + seed, seed=seed)
  one, _ = judge_one(folder)
  assert len(one.measured) == 1 and one.difference.mean == 5
  for seed in (1, 2):
    make_run(folder, 'fedavg', FEW, seed=seed)
  one, text = judge_one(folder)
  half = 4.30265 / np.sqrt(3)  # differences of 5, 6 and 7
  assert one.difference.mean == 6
  assert one.difference[1:3] == pytest.approx((6 - half, 6 + half), abs=1e-4)
  assert one.difference.kind == 'seeds' and '**Shown; 3 seeds.**' in text


def test_a_gain_is_compared_with_a_gain(folder):
  make_run(folder, 'fedbabu', FEW + 1, shards=5)
  make_run(folder, 'fedavg', FEW, shards=5)
  more = "more_at = 'shards_per_client=2'\nless_at = 'shards_per_client=5'\n"
  replaced = ("'shards_per_client=2,metric", "'metric")
  one, text = judge_one(folder, more=more, replaced=replaced)
  assert one.difference.mean == 4 and one.verdict == 'shown'
  assert one.difference.kind == 'paired' and one.printed.mean == 0
  assert text.count('python experiments/reproduce.py') == 2


def test_another_view_has_no_printed_number(folder):
  shutil.rmtree(folder / 'runs')
  best = {'mix': {'together': {'view': 'mix_0.5'}}}
  mixed = {'mix_0.0': FEW - 9, 'mix_0.5': FEW + 2}
  make_run(folder, 'fedbabu', FEW, views=mixed, test_best_view=best)
  make_run(folder, 'fedavg', FEW, views={'local_update': FEW})
  views = "above_view = 'mix:best'\nbelow_view = 'local_update'\n"
  one, text = judge_one(folder, more=views)
  assert 'mix_0.5 (best by tests) |' in text
  assert (one.difference.mean, one.printed, one.verdict) == (2, None, 'shown')


def test_ours_is_put_beside_print(folder):
  """Print has 60 and 55, with a deviation of 9 over 10 clients."""
  one, _ = judge_one(folder)
  assert one.printed.mean == 5
  for beside in one.cells:
    assert beside.compared.difference == 10 and beside.compared.agrees
  make_run(folder, 'fedper', FEW + 30)
  _, text = judge_one(folder, 'fedper', 'fedavg')
  assert 'Ours differs from print by more than twice' in text


def test_one_number_of_the_server(folder):
  numbers = {'accuracy': 70.0, 'count': 400, 'last10': {'mean': 70.0}}
  shutil.rmtree(folder / 'runs')
  views = {'initial': FEW}
  run = make_run(folder, 'fedper', FEW, views=views, **{'global': numbers})
  write_summary(folder)
  given = {'replaced': ('personalized_accuracy', 'global_accuracy')}
  one, _ = judge_one(folder, 'fedper', 'fedper', **given)
  half = 1.96 * np.sqrt(2 * 0.7 * 0.3 / 400) * 100
  assert one.difference[1:3] == pytest.approx((-half, half))
  shutil.rmtree(run)  # of how many images it was is not in the row
  one, _ = judge_one(folder, 'fedper', 'fedper', **given)
  assert one.difference.mean == 0 and not one.difference.has_interval
  assert one.verdict == 'not shown'


def test_a_training_that_diverged_is_named(folder):
  run = make_run(folder, 'fedper', FEW)
  (run / 'result.json').unlink()
  one, _ = judge_one(folder, 'fedbabu', 'fedper')
  assert one.verdict == 'half run' and not one.diverged
  (run / 'diverged.json').write_text('{"message": "NaN in round 1"}')
  one, text = judge_one(folder, 'fedbabu', 'fedper')
  assert one.diverged == ('FedPer',)
  assert 'half run: diverged (FedPer) |' in text


def test_damaged_or_absent_results_are_a_sentence(folder):
  """Nor is anything written into results."""
  before = sorted(folder.rglob('*'))
  judge(folder, PAIR)
  assert sorted({*folder.rglob('*')} - {folder / 'claims.toml'}) == before
  clients = folder / 'runs' / 'fedavg_2_0' / 'clients.npz'
  clients.write_bytes(clients.read_bytes()[:-9])
  with pytest.raises(BadInput, match=r'missing or not as the run wrote it'):
    judge(folder, PAIR)
  given = folder / 'claims.toml', folder / 'none', claim_runs.load_table
  with pytest.raises(BadInput, match=r'none, which is no folder'):
    write.judge(*given, claim_runs.CONFIGS, print)


GOOD = claim_runs.CLAIM + claim_runs.COMPARISON.format('fedbabu', 'fedavg')


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('algorithm=fedavg', 'algorithm=fedrep', 'algorithm=fedrep.*fedavg'),
    ('shards_per_client=2', 'shards_per_client=7', 'shards_per_client=7'),
    ('shards_per_client=2,', '', 'which 2 cells of fedbabu/98 match'),
    ('fedbabu/98', 'fedbabu/fig1', 'figures have no cells'),
    ("below = 'algorithm=fedavg'", '', "got 'no below'"),
    ("title = 'the first'", '', "got 'no title'"),
    ("'the first'", '3', 'expected a text'),
    ('[[claims.comparisons]]', '[claims.comparisons]', r'\[\[claims.comp'),
    ("above = '", "less_at = 'x=1'\nabove = '", 'more_at and less_at'),
    ('[[claims]]', '[claims]', r'\[\[claims\]\]'),
    ("name = 'a'", 'name = a', 'a file in TOML'),
    (GOOD, GOOD + GOOD, 'a twice'),
    (GOOD, None, 'no such file'),
  ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, old, new, words):
  assert old in GOOD
  path = tmp_path / 'claims.toml'
  if new is not None:
    path.write_text(GOOD.replace(old, new))
  message = refused(load_claims, path, claim_runs.load_table)
  assert str(path) in message and re.search(words, message)


# ---- Our results -------------------------------------------------------------

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / 'results'
COMMAND = 'python experiments/claims.py --write'


@pytest.fixture(scope='module')
def verdicts():
  configs = {name: parse_config(one) for name, one in load_configs().items()}
  claims = RESULTS / 'claims.toml'
  return write.judge(claims, RESULTS, load_table, configs, print)


def test_the_pages_are_those_of_the_results(verdicts):
  for page, text in write.texts(verdicts, RESULTS, ROOT).items():
    assert page.read_text() == text, COMMAND
  _, rest = (ROOT / 'README.md').read_text().split(write.BEGIN)
  rows = re.findall(r'^\| (\w+) \|.*', rest.partition(write.END)[0], re.M)
  assert rows == [verdict.claim.name for verdict in verdicts]
  assert len(rows) == 8


def test_the_figures_are_those_of_the_results(verdicts, tmp_path):
  """Their numbers: an image depends on the version of matplotlib."""
  drawn = figures.save_all(verdicts, tmp_path)
  assert len(drawn) == 2
  for path in drawn:
    stored = ROOT / write.IMAGES / path.name
    assert stored.stat().st_size > 20_000
    table = stored.with_suffix('.csv').read_text()
    assert table == path.with_suffix('.csv').read_text(), COMMAND


def test_no_number_of_the_results_is_typed_by_hand():
  page = (ROOT / 'docs' / 'results.md').read_text()
  before, rest = page.split(write.BEGIN)
  typed = before + rest.partition(write.END)[2]
  assert not re.findall(r'\d+\.\d', typed)
  text = (RESULTS / 'claims.toml').read_text()
  assert '±' not in text and not re.findall(r'\d\d\.\d', text)


def test_every_cell_is_in_the_queue_or_was_run(verdicts):
  """Else nothing would ever turn 'not run' into a verdict."""
  queue = load_queue(RESULTS / 'queue.toml', load_table)
  queued = {
    str(cell.settings) for entry in queue.entries for cell in entry.cells
  }
  for verdict in verdicts:
    for term, _, measured in verdict.cells:
      assert measured or str(term.cell.settings) in queued, term.where
