"""Verdicts of small results, made by hand; and those of our results."""

import collections
import re
import shutil

import claim_runs
import numpy as np
import pytest
from claim_runs import judge, make_run
from helpers import refused
from pages import ROOT
from printed import load_cells, load_table
from user_commands import load_command

from experiments import commandline
from experiments.marked_pages import END
from experiments.reproduction.claims import claims_page, write
from experiments.reproduction.claims.claims_file import load_claims
from experiments.reproduction.claims.verdicts import PLANNED, printed_of
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.results.runs.folder import read_folder
from fedjax_pfl.training import divergence

FEW = np.array([50, 60, 70, 80])
MORE = np.array([4, 5, 6, 5])
PAIR = ('fedbabu', 'fedavg')


@pytest.fixture
def folder(tmp_path):
  """Return results in which FedBABU is 4, 5 and 6 points above FedAvg."""
  for seed in range(3):
    make_run(tmp_path, 'fedbabu', FEW + MORE + seed - 1, seed=seed)
    make_run(tmp_path, 'fedavg', FEW, seed=seed)
  return tmp_path


def judge_one(folder):
  """Return the only comparison, and the section of the page."""
  verdict = judge(folder, PAIR)
  (one,) = verdict.judged
  return one, claims_page.whole([verdict])


def test_each_verdict(folder):
  """p is 0.0132: 0.039 of three comparisons, 0.066 of five."""
  for seed in range(3):
    make_run(folder, 'fedper', FEW + [-1, 1, -1, 1], seed=seed)
  pairs = [PAIR, ('fedavg', 'fedper'), PAIR[::-1]]
  verdict = judge(folder, *pairs)
  assert [(x.verdict, x.difference.mean) for x in verdict.like] == [
    ('shown', 5),
    ('not shown', 0),
    ('contradicted', -5),
  ]
  assert verdict.judged[0].p == pytest.approx(3 * 0.013072, abs=1e-5)
  words = '1 of 3 shown, 1 not shown, 1 contradicted; 3 seeds'
  assert claims_page.words_of(verdict.like) == words
  # What is not run counts, too.
  more = [('fedper', 'fedbabu'), ('fedper', 'fedavg')]
  first, _, last, *_ = judge(folder, *pairs, *more).like
  assert (first.verdict, last.verdict) == ('suggested', 'doubted')
  shutil.rmtree(folder / 'runs')
  (one, *_) = judge(folder, *pairs).judged
  assert one.verdict == 'not run' and not one.measured


def test_seeds_in_common_are_compared(folder):
  one, text = judge_one(folder)
  half = 4.30265 / np.sqrt(3)
  assert one.difference[:3] == pytest.approx((5, 5 - half, 5 + half), abs=1e-4)
  assert '| shown; 3 seeds |' in text
  first, _ = write._client_row(one, 'c0').words
  assert first == '+5.00 (2.52 to 7.48), published +5.00'
  for seed in (1, 2):
    lost = folder / 'runs' / f'fedavg_2_{seed}'
    (lost / 'result.json').rename(lost / divergence.NAME)
  one, text = judge_one(folder)
  assert len(one.measured) == 1 and one.difference.mean == 4
  words = 'not shown, one seed: diverged with other seeds (FedAvg) |'
  assert words in text


def test_seeds_that_were_added_after_a_look_decide_nothing(folder):
  before, text = judge_one(folder)
  assert 'added' not in text
  for seed in (3, 4):
    make_run(folder, 'fedbabu', FEW + MORE + 5, seed=seed)
    make_run(folder, 'fedavg', FEW, seed=seed)
  one, text = judge_one(folder)
  assert (one.difference, one.p) == (before.difference, before.p)
  assert one.with_added().difference.mean == pytest.approx(7)  # 4 5 6 10 10
  words = r'shown \(p 0.013\), 3 seeds; \+7.00 \(3.* to 1.*\) with 2 added \|'
  assert re.search(words, text)


def test_unlike_views_are_judged_twice(folder):
  """Or said to be stored nowhere."""
  path, results = folder / 'claims.toml', (folder, claim_runs.load_table)
  path.write_text(GOOD + "unlike = 'adapted on tests'\n")
  (verdict,) = write.judge(path, *results)
  assert verdict.judged[0].verdict == 'shown'
  assert verdict.like[0].verdict == 'not stored'
  assert 'adapted on tests.' in claims_page.whole([verdict])


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
    write.judge(*given)


GOOD = claim_runs.CLAIM + claim_runs.COMPARISON.format('fedbabu', 'fedavg')


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('algorithm=fedavg', 'algorithm=fedrep', 'algorithm=fedrep.*fedavg'),
    ('shards_per_client=2', 'shards_per_client=7', 'shards_per_client=7'),
    ('shards_per_client=2,', '', 'which 2 cells of fedbabu/98 match'),
    ("below = 'algorithm=fedavg'", '', "argument: 'below'"),
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


def test_cells_without_a_printed_number_have_no_printed_difference(tmp_path):
  path, where = tmp_path / 'claims.toml', "where = 'metric=last_accuracy'"
  text = re.sub("'fedbabu/98'", "'pfllib/1'", GOOD)
  path.write_text(re.sub('where = .*', where, text))
  (claim,) = load_claims(path, load_table)
  assert printed_of(claim.comparisons[0].terms) is None


# ---- Our results -------------------------------------------------------------

RESULTS = ROOT / 'results'
COMMAND = 'python experiments/claims.py --write'


@pytest.fixture(scope='module')
def verdicts():
  claims = RESULTS / 'claims.toml'
  return write.judge(claims, RESULTS, load_table)


def test_the_page_is_that_of_the_results(verdicts):
  page = ROOT / write.PAGE
  assert page.read_text() == write.text(verdicts, RESULTS, page), COMMAND
  rows = re.findall(r'^\| \((\w+)\) \|.*', page.read_text(), re.M)
  assert rows == [verdict.claim.name for verdict in verdicts]
  assert len(rows) == 8


def test_five_seeds_decide_when_every_first_comparison_has_them(verdicts):
  """The rule of stopping, in results/claims.toml."""
  firsts = [verdict.like[0] for verdict in verdicts] + [verdicts[5].like[1]]
  have = [len(one.measured) + len(one.added) for one in firsts]
  assert verdicts[5].claim.name == 'd' and len(PLANNED) == min(have)


def test_lg_fedavg_is_fine_tuned_where_fedbabu_is(verdicts):
  like, published = (
    next(x for x in judged if 'LG-FedAvg' in x.stated.sentence)
    for judged in (verdicts[0].like, verdicts[0].judged)
  )
  assert {one.view for seed in like.measured for one in seed} == {'finetuned'}
  assert {one.view for one in published.measured[0]} == {'finetuned', 'initial'}
  gaps = [ours.score.mean - theirs.score.mean for ours, theirs in like.measured]
  assert like.difference.mean == pytest.approx(np.mean(gaps))
  assert like.difference.mean < published.difference.mean - 10


def test_without_results_every_claim_is_not_run(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr('configs.tables.common.load_table', load_table)
  main, file = load_command(monkeypatch, 'claims.py')
  claims = f'--claims={RESULTS / "claims.toml"}'
  commandline.parse_words([file, claims, f'--workdir={tmp_path}'])
  main()
  lines = capsys.readouterr().out.splitlines()
  assert sum(line.endswith(': not run') for line in lines) == 7
  words = '5 of 7 not run, 2 not stored'  # claim a
  assert sum(line.endswith(words) for line in lines) == 1
  first = '(a) FedBABU > FedAvg not run +6.70'
  assert ' '.join(lines[2].split()) == first
  assert not [*tmp_path.iterdir()]


def test_the_figures_are_those_of_the_results(verdicts, tmp_path):
  """Their numbers: an image depends on the version of matplotlib."""
  drawn = write.save_figures(verdicts, tmp_path)
  assert len(drawn) == 2
  for path in drawn:
    stored = ROOT / write.IMAGES / path.name
    assert stored.stat().st_size > 20_000
    table = stored.with_suffix('.csv').read_text()
    assert table == path.with_suffix('.csv').read_text(), COMMAND


def test_no_number_of_the_results_is_typed_by_hand():
  page = (ROOT / 'docs' / 'results.md').read_text()
  before, rest = page.split(write.BEGIN)
  typed = before + rest.partition(END)[2]
  assert not re.findall(r'\d+\.\d', typed)
  text = (RESULTS / 'claims.toml').read_text()
  assert '±' not in text and not re.findall(r'\d\d\.\d', text)


def test_the_table_of_epochs_is_that_of_the_results():
  """docs/reproduction.md: each column has numbers of runs of that length."""
  ran, lengths = collections.defaultdict(set), {}
  for one in read_folder(RESULTS):
    first, views = one.training, [*one.run.result['views'].values()]
    for best in first.run.result['test_best'].values():
      views += [best['finished']] if 'finished' in best else []
    length = lengths.get(first.start, first.run.settings.training.total_epochs)
    lengths[first.key] = length
    ran[length] |= {f'{view["mean"]:.2f} ± {view["std"]:.2f}' for view in views}
  page = (ROOT / 'docs' / 'reproduction.md').read_text()
  _, table = page.split('| 160 epochs | print |\n|---|---|---|---|')
  rows = re.findall(r'\|.+\| (.+) \| (.+) \| (.+) \|', table.split('\n\n')[0])
  prints = [cell.published for cell in load_cells()]
  printed = {f'{one.mean:.2f} ± {one.std:.2f}' for one in prints if one.std}
  assert len(rows) == 24
  for whole, half, print_ in rows:
    assert whole in ran[320] | {'not run'} and half in ran[160], (whole, half)
    assert print_ in printed
