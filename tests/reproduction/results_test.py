"""Results of many runs: read from their directories, and merged."""

import shutil

import numpy as np
import pytest
from finished_runs import TRAIN_COUNT, make_run, make_settings
from helpers import refused
from small_runs import snapshot

from fedjax_pfl.core import atomic_files
from fedjax_pfl.reproduction.results.results import Results, merge
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

BODY = {'finetune': {**make_settings()['finetune'], 'trainable': 'body'}}


def find(results, run, view='initial', folder=None):
  settings = parse_config(run_dir.load_config(folder or run)['config'])
  return results.find(keys.run_key(run), keys.evaluation_key(settings), view)


def scanned(folder):
  results = Results()
  results.scan(folder)
  return results


def test_every_number_of_every_client_comes_back(tmp_path):
  views = ('initial', 'finetuned', 'initial:own')
  result = {'global': {'accuracy': 41.5, 'count': 150}}
  run = make_run(tmp_path / 'run', views=views, result=result)
  stored, results = run_dir.load_clients(run), Results()
  assert results.add_run(run) == 1
  for view in views:
    found = find(results, run, view)
    np.testing.assert_array_equal(found.ids, np.arange(5))
    np.testing.assert_array_equal(found.train_count, TRAIN_COUNT)
    for ours, theirs in zip(found.scores, stored.scores[view], strict=True):
      np.testing.assert_array_equal(ours, theirs)
  assert found.result == run_dir.load_result(run)
  assert found.settings.finetune.trainable == 'full'
  assert (found.data, found.training.seconds) == ('images-clients', 12.0)
  assert found.training.processor and found.training.path == str(run)
  assert find(results, run, 'personal') is None
  assert results.find('0' * 16, '0' * 16, 'initial') is None


@pytest.mark.parametrize('damage', [b'', None, 'flip'])
def test_a_finished_run_with_a_damaged_file_is_refused(tmp_path, damage):
  path = make_run(tmp_path / 'runs' / 'a') / run_dir.CLIENTS
  if damage == 'flip':  # a readable file with another number
    arrays = atomic_files.read_npz(path)
    arrays['train_count'] = arrays['train_count'] + 1
    atomic_files.write_npz(path, arrays, compressed=True)
  elif damage is None:
    path.unlink()
  else:
    path.write_bytes(damage)
  message = refused(scanned, tmp_path / 'runs')
  assert f'{path}, which is missing or not as the run wrote it' in message


def test_scores_without_their_result_are_not_finished(tmp_path):
  """An evaluation that was killed while it added views is made again."""
  path = make_run(tmp_path / 'a')
  settings = run_dir.load_config(path)['config']
  run = run_dir.open_run(path, settings, data='images-clients', log=print)
  run.write_clients({}, [0], train_count=[1])
  run.close()
  assert not run_dir.is_finished(path)


def test_what_was_gathered_is_not_gathered_again(tmp_path):
  make_run(tmp_path / 'runs' / 'a')
  make_run(tmp_path / 'runs' / 'deeper' / 'b', seed=1)
  run_dir.open_run(tmp_path / 'runs' / 'new', {}, data='', log=print)
  results = Results()
  assert results.scan(tmp_path / 'runs') == 2
  shutil.copytree(tmp_path / 'runs' / 'a', tmp_path / 'runs' / 'copy')
  assert results.scan(tmp_path / 'runs') == 0


def test_evaluated_again_later(tmp_path):
  """The folder of an evaluation may grow; old views stay as they are."""
  run, results = make_run(tmp_path / 'run'), Results()
  again = run / 'evaluations' / 'body'
  assert results.add_run(run) == 1
  make_run(again, **BODY)
  assert results.add_run(run) == 1
  make_run(again, views=('initial', 'finetuned'), **BODY)
  assert results.add_run(run) == 1
  found = find(results, run, 'finetuned', folder=again)
  assert found.settings.finetune.trainable == 'body'
  assert set(found.result['views']) == {'initial', 'finetuned'}
  assert found.evaluation.path == str(again)
  assert find(results, run, 'finetuned') is None


def test_other_tests_are_an_evaluation_and_no_training(tmp_path):
  """They change the fingerprint of the data, but not what was trained on."""
  run, results = make_run(tmp_path / 'run'), Results()
  others = {'test_partition': 'independent', 'data': 'images-others'}
  again = make_run(run / 'evaluations' / 'others', **others)
  assert results.scan(tmp_path) == 2
  assert find(results, run, folder=again).data == 'images-others'
  assert len(results.trainings()) == 1
  copy = make_run(tmp_path / 'copy')
  make_run(copy / 'evaluations' / 'a', **{**others, 'data': 'images-more'})
  message = refused(results.add_run, copy)
  assert "got 'images-more in" in message and str(again) in message


def test_merging_skips_what_is_equal_and_refuses_what_is_not(tmp_path):
  here, there, third = (tmp_path / name for name in ('here', 'there', 'third'))
  run = make_run(here / 'runs' / 'a')
  make_run(there / 'runs' / 'a', more=1e-8)
  new = make_run(there / 'runs' / 'deeper' / 'a', seed=1)
  (new / 'checkpoints').mkdir()
  assert merge(there, here) == 1
  assert merge(there / 'runs', here) == 0
  assert {path.name for path in (here / 'runs').iterdir()} == {'a', 'a-2'}
  assert [path.name for path in here.iterdir()] == ['runs']
  found = find(scanned(here / 'runs'), new)
  assert found.training.path == str(here / 'runs' / 'a-2')
  assert not (here / 'runs' / 'a-2' / 'checkpoints').exists()

  before = snapshot(here)
  make_run(third / 'c', seed=2)  # good, but comes with what is not
  make_run(third / 'd', more=1e-5)
  message = refused(merge, third, here)
  assert 'loss=' in message and 'of 5 clients differ' in message
  assert str(third / 'd') in message and str(run) in message
  assert snapshot(here) == before


def test_the_global_model_may_not_disagree_either(tmp_path):
  for name, accuracy in (('a', 41.5), ('b', 41.6)):
    make_run(tmp_path / name, result={'global': {'accuracy': accuracy}})
  message = refused(scanned, tmp_path)
  assert 'global.accuracy=41.6' in message and '41.5' in message


def test_other_data_for_the_same_settings_and_seed(tmp_path):
  make_run(tmp_path / 'a')
  make_run(tmp_path / 'c', data='others-clients', seed=1)
  results = scanned(tmp_path)
  make_run(tmp_path / 'b', data='others-clients')
  message = refused(results.add_run, tmp_path / 'b')
  assert "got 'others-clients in" in message and 'images-clients' in message


def test_runs_that_started_from_another(tmp_path):
  """The first is found wherever it was gathered; merging keeps the chain."""
  runs = tmp_path / 'there' / 'runs'
  first = make_run(runs / 'z', model=b'1')
  digest = keys.model_digest(first)
  begun = {'data': f'images-clients+{digest}', 'init_from': str(first)}
  make_run(runs / 'a', **begun)
  assert merge(tmp_path / 'there', tmp_path / 'here') == 2
  shutil.rmtree(runs)  # the path of init_from is that of the other machine
  results = scanned(tmp_path / 'here' / 'runs')
  starts = {one.start for one in results.trainings().values()}
  assert starts == {'', keys.run_key(tmp_path / 'here' / 'runs' / 'z')}


def test_what_cannot_be_added_is_a_sentence(tmp_path):
  run_dir.open_run(tmp_path / 'new', make_settings(), data='', log=print)
  assert 'a finished run' in refused(Results().add_run, tmp_path / 'new')
  make_run(tmp_path / 'theirs' / 'a')
  (tmp_path / 'file').write_text('')
  for other in ('new', 'nowhere', 'file'):
    message = refused(merge, tmp_path / other, tmp_path / 'ours')
    assert message.startswith(f"merge: got '{tmp_path / other}', expected")
  assert not (tmp_path / 'ours').exists()
  assert 'results: got' in refused(
    merge, tmp_path / 'theirs', tmp_path / 'file'
  )
