"""Verdicts of small results, made by hand."""

import shutil

import claim_runs
import numpy as np
import pytest
from claim_runs import judge, judge_file, make_run, state, write_summary

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.claims import document, write
from fedjax_pfl.reproduction.claims.entries import load_claims
from fedjax_pfl.reproduction.claims.verdicts import (
  CONTRADICTED,
  HALF_RUN,
  NOT_RUN,
  NOT_SHOWN,
  SHOWN,
)

FEW = np.array([50, 60, 70, 80])
MORE = np.array([4, 5, 6, 5])


@pytest.fixture
def folder(tmp_path):
  """Return results in which FedBABU is 5 points above FedAvg."""
  make_run(tmp_path, 'fedbabu', FEW + MORE)
  make_run(tmp_path, 'fedavg', FEW)
  write_summary(tmp_path)
  return tmp_path


def test_each_of_the_four_verdicts(folder):
  make_run(folder, 'fedper', FEW + [-1, 1, -1, 1])
  pairs = [
    ('fedbabu', 'fedavg'),
    ('fedavg', 'fedper'),
    ('fedavg', 'fedbabu'),
  ]
  verdict = judge(folder, *pairs)
  assert [one.verdict for one in verdict.judged] == [
    SHOWN,
    NOT_SHOWN,
    CONTRADICTED,
  ]
  assert [one.difference.mean for one in verdict.judged] == [5, 0, -5]
  assert document.words_of(verdict) == (
    '1 of 3 shown, 1 not shown, 1 contradicted; one seed'
  )
  shutil.rmtree(folder / 'runs' / 'fedper_2_0')
  verdict = judge(folder, *pairs)
  half = verdict.judged[1]
  assert half.verdict == HALF_RUN and half.difference is None
  assert document.words_of(verdict) == (
    '1 of 3 shown, 1 contradicted, 1 half run; one seed'
  )
  assert '| FedAvg > FedPer | FedAvg 65.00 alone, print 55.00 |' in (
    document.whole([verdict])
  )
  shutil.rmtree(folder / 'runs')
  (folder / 'summary.csv').unlink()
  (one, *_) = judge(folder, *pairs).judged
  assert one.verdict == NOT_RUN and not one.alone


def test_a_row_without_its_run_is_compared_unpaired(folder):
  shutil.rmtree(folder / 'runs' / 'fedavg_2_0')
  verdict = judge(folder, ('fedbabu', 'fedavg'))
  (one,) = verdict.judged
  error = np.sqrt((np.var(FEW + MORE) + np.var(FEW)) / 4)
  ends = 5 - 1.96 * error, 5 + 1.96 * error
  assert one.difference[1:3] == pytest.approx(ends, abs=1e-3)
  assert one.verdict == NOT_SHOWN  # paired, it was shown
  text = document.whole([verdict])
  assert 'Of FedAvg only the mean and the deviation are left' in text
  assert '| 0 | `' in text and 'not kept |' in text


def test_seeds_in_common_are_compared(folder):
  for seed in (1, 2):
    make_run(folder, 'fedbabu', FEW + MORE + seed, seed=seed)
  (one,) = judge(folder, ('fedbabu', 'fedavg')).judged
  assert len(one.measured) == 1 and one.difference.mean == 5
  for seed in (1, 2):
    make_run(folder, 'fedavg', FEW, seed=seed)
  verdict = judge(folder, ('fedbabu', 'fedavg'))
  (one,) = verdict.judged
  half = 4.30265 / np.sqrt(3)  # differences of 5, 6 and 7
  assert one.difference.mean == 6
  assert one.difference[1:3] == pytest.approx((6 - half, 6 + half), abs=1e-4)
  assert one.difference.kind == 'seeds' and one.verdict == SHOWN
  assert document.words_of(verdict) == 'shown; 3 seeds'


def test_a_gain_is_compared_with_a_gain(folder):
  make_run(folder, 'fedbabu', FEW + 1, shards=5)
  make_run(folder, 'fedavg', FEW, shards=5)
  text = state(folder, ('fedbabu', 'fedavg')).read_text()
  text = text.replace('shards_per_client=2,', '')
  text += "more_at = 'shards_per_client=2'\nless_at = 'shards_per_client=5'\n"
  (folder / 'claims.toml').write_text(text)
  verdict = judge_file(folder)
  (one,) = verdict.judged
  assert one.difference.mean == 4 and one.verdict == SHOWN
  assert one.difference.kind == 'paired' and one.printed.mean == 0
  assert document.whole([verdict]).count('python exp') == 2


def test_another_view_has_no_printed_number(folder):
  shutil.rmtree(folder / 'runs')
  best = {'mix': {'together': {'view': 'mix_0.5'}}}
  mixed = {'mix_0.0': FEW - 9, 'mix_0.5': FEW + 2}
  make_run(folder, 'fedbabu', FEW, views=mixed, test_best_view=best)
  make_run(folder, 'fedavg', FEW, views={'local_update': FEW})
  views = "above_view = 'mix:best'\nbelow_view = 'local_update'\n"
  verdict = judge(folder, ('fedbabu', 'fedavg'), more=views)
  assert 'mix_0.5 (best by tests) |' in document.whole([verdict])
  (one,) = verdict.judged
  assert (
    one.difference.mean == 2 and one.printed is None and one.verdict == SHOWN
  )


def test_ours_is_put_beside_print(folder):
  """Print has 60 and 55, with a deviation of 9 over 10 clients."""
  verdict = judge(folder, ('fedbabu', 'fedavg'))
  above, below = verdict.cells
  assert above.compared.difference == 10
  assert below.compared.difference == 10
  assert verdict.judged[0].printed.mean == 5
  assert above.compared.agrees and below.compared.agrees
  make_run(folder, 'fedper', FEW + 30)
  verdict = judge(folder, ('fedper', 'fedavg'))
  assert 'Ours differs from print by more than twice' in document.whole(
    [verdict]
  )


def test_one_number_of_the_server(folder):
  numbers = {'accuracy': 70.0, 'count': 400, 'last10': {'mean': 70.0}}
  shutil.rmtree(folder / 'runs')
  views = {'initial': FEW}
  run = make_run(folder, 'fedper', FEW, views=views, **{'global': numbers})
  write_summary(folder)
  text = state(folder, ('fedper', 'fedper')).read_text()
  text = text.replace('personalized_accuracy', 'global_accuracy')
  (folder / 'claims.toml').write_text(text)
  (one,) = judge_file(folder).judged
  half = 1.96 * np.sqrt(2 * 0.7 * 0.3 / 400) * 100
  assert one.difference[1:3] == pytest.approx((-half, half))
  shutil.rmtree(run)  # of how many images it was is not in the row
  (one,) = judge_file(folder).judged
  assert one.difference.mean == 0 and not one.difference.has_interval
  assert one.verdict == NOT_SHOWN


def test_a_training_that_diverged_is_named(folder):
  run = make_run(folder, 'fedper', FEW)
  (run / 'result.json').unlink()
  (one,) = judge(folder, ('fedbabu', 'fedper')).judged
  assert one.verdict == HALF_RUN and not one.diverged
  (run / 'diverged.json').write_text('{"message": "NaN in round 1"}')
  verdict = judge(folder, ('fedbabu', 'fedper'))
  assert verdict.judged[0].diverged == ('FedPer',)
  assert 'half run: diverged (FedPer) |' in document.whole([verdict])


@pytest.mark.parametrize('spoil', ['cut', 'removed'])
def test_a_damaged_run_is_a_sentence(folder, spoil):
  clients = folder / 'runs' / 'fedavg_2_0' / 'clients.npz'
  if spoil == 'cut':
    clients.write_bytes(clients.read_bytes()[:-9])
  else:
    clients.unlink()
  with pytest.raises(BadInput, match=r'missing or not as the run wrote it'):
    judge(folder, ('fedbabu', 'fedavg'))


def test_results_that_are_not_there_are_a_sentence(folder):
  path = state(folder, ('fedbabu', 'fedavg'))
  with pytest.raises(BadInput, match=r'none, which is no folder'):
    write.judge(
      path, folder / 'none', claim_runs.load_table, claim_runs.CONFIGS, print
    )


def test_nothing_is_written_into_results(folder):
  before = sorted(folder.rglob('*'))
  judge(folder, ('fedbabu', 'fedavg'))
  assert sorted({*folder.rglob('*')} - {folder / 'claims.toml'}) == before


GOOD = claim_runs.CLAIM + claim_runs.COMPARISON.format('fedbabu', 'fedavg')


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('algorithm=fedavg', 'algorithm=fedrep', 'algorithm=fedrep.*fedavg'),
    ('shards_per_client=2', 'shards_per_client=7', 'shards_per_client=7'),
    ('shards_per_client=2,', '', 'which 2 cells of fedbabu/98 match'),
    ('fedbabu/98', 'fedbabu/97', "got 'fedbabu/97'"),
    ('fedbabu/98', 'fedbabu/fig1', 'figures have no cells'),
    ("below = 'algorithm=fedavg'", '', "got 'no below'"),
    ('below =', 'under =', "got 'under'.*below"),
    ("title = 'the first'", '', "got 'no title'"),
    ("'the first'", '3', 'expected a text'),
    ('[[claims.comparisons]]', '[claims.comparisons]', r'\[\[claims.comp'),
    ("above = '", "less_at = 'x=1'\nabove = '", 'more_at and less_at'),
    ('[[claims]]', '[claims]', r'\[\[claims\]\]'),
    ("name = 'a'", 'name = a', 'a file in TOML'),
  ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, old, new, words):
  assert old in GOOD
  path = tmp_path / 'claims.toml'
  path.write_text(GOOD.replace(old, new))
  with pytest.raises(BadInput, match=words) as refused:
    load_claims(path, claim_runs.load_table)
  assert str(path) in str(refused.value)
  assert 'Likely cause: ' in str(refused.value)


def test_a_name_is_given_once_and_a_file_is_there(tmp_path):
  path = tmp_path / 'claims.toml'
  path.write_text(GOOD + GOOD)
  with pytest.raises(BadInput, match='a twice'):
    load_claims(path, claim_runs.load_table)
  with pytest.raises(BadInput, match='no such file'):
    load_claims(tmp_path / 'none.toml', claim_runs.load_table)
