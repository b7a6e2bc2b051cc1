"""Results of many runs in one file: gathered once, and merged."""

import contextlib
import re
import shutil
import sqlite3

import numpy as np
import pytest
from finished_runs import TRAIN_COUNT, make_run, make_settings
from helpers import refused

from fedjax_pfl.core import atomic_files
from fedjax_pfl.reproduction.results.results import Results
from fedjax_pfl.runs import results_db, results_rows, run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

BODY = {'finetune': {**make_settings()['finetune'], 'trainable': 'body'}}


def find(results, run, view='initial', folder=None):
  settings = parse_config(run_dir.load_config(folder or run)['config'])
  return results.find(keys.run_key(run), keys.evaluation_key(settings), view)


def content(path):
  with contextlib.closing(results_db.connect(path, write=False)) as connection:
    return list(connection.iterdump())


def test_every_number_of_every_client_comes_back(tmp_path):
  views = ('initial', 'finetuned', 'initial:own')
  result = {'global': {'accuracy': 41.5, 'count': 150}}
  run = make_run(tmp_path / 'run', views=views, result=result)
  stored = run_dir.load_clients(run)
  with Results.open(tmp_path / 'results') as results:
    assert results.add_run(run) == 1
    for view in views:
      found = find(results, run, view)
      np.testing.assert_array_equal(found.ids, np.arange(5))
      np.testing.assert_array_equal(found.train_count, TRAIN_COUNT)
      for ours, theirs in zip(found.scores, stored.scores[view], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert found.result == run_dir.load_result(run)
    assert found.settings.finetune.trainable == 'full'
    assert (found.data, found.training.finished) == ('images-clients', 1002.0)
    assert found.training.processor and found.training.path == str(run)
    assert find(results, run, 'personal') is None
    assert results.find('0' * 16, '0' * 16, 'initial') is None
  with contextlib.closing(
    results_db.connect(tmp_path / 'results' / 'results.sqlite', write=False)
  ) as connection:
    (one,) = results_rows.read_trainings(connection).values()
  assert (one.seed, one.rounds, one.images_per_second) == (0, 16, 100.0)
  assert (one.bytes_down, one.bytes_up) == (None, 24)


@pytest.mark.parametrize('damage', [b'', None, 'flip'])
def test_a_finished_run_with_a_damaged_file_is_refused(tmp_path, damage):
  path = make_run(tmp_path / 'runs' / 'a') / run_dir.CLIENTS
  content = path.read_bytes()
  if damage == 'flip':  # a readable file with another number
    arrays = atomic_files.read_npz(path)
    arrays['train_count'] = arrays['train_count'] + 1
    atomic_files.write_npz(path, arrays, compressed=True)
    damage = path.read_bytes()
  path.unlink()
  if damage is not None:
    path.write_bytes(damage)
  with Results.open(tmp_path) as results:
    message = refused(results.scan, tmp_path / 'runs')
    assert f'{path}, which is missing or not as the run wrote it' in message
    path.write_bytes(content)
    assert results.scan(tmp_path / 'runs') == 1


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
  file = tmp_path / 'results.sqlite'
  with Results.open(tmp_path) as results:
    assert results.scan(tmp_path / 'runs') == 2
    before = content(file)
    assert results.scan(tmp_path / 'runs') == 0
    shutil.copytree(tmp_path / 'runs' / 'a', tmp_path / 'runs' / 'copy')
    assert results.scan(tmp_path / 'runs') == 0
  assert content(file) == before


def test_evaluated_again_later(tmp_path):
  """The folder of an evaluation may grow; old views stay as they are."""
  run = make_run(tmp_path / 'run')
  again = run / 'evaluations' / 'body'
  with Results.open(tmp_path) as results:
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
  run = make_run(tmp_path / 'run')
  others = {'test_partition': 'independent', 'data': 'images-others'}
  again = make_run(run / 'evaluations' / 'others', **others)
  with Results.open(tmp_path) as results:
    assert results.scan(tmp_path) == 2
    assert find(results, run, folder=again).data == 'images-others'
    assert len(results_rows.read_trainings(results._connection)) == 1
    copy = make_run(tmp_path / 'copy')
    make_run(copy / 'evaluations' / 'a', **{**others, 'data': 'images-more'})
    message = refused(results.add_run, copy)
  assert "got 'images-more in" in message and str(again) in message


def test_merging_skips_what_is_equal_and_refuses_what_is_not(tmp_path):
  run = make_run(tmp_path / 'here' / 'runs' / 'a')
  make_run(tmp_path / 'there' / 'runs' / 'a', more=1e-8)
  make_run(tmp_path / 'there' / 'runs' / 'b', seed=1)
  with Results.open(tmp_path / 'there') as there:
    there.scan(tmp_path / 'there' / 'runs')
  with Results.open(tmp_path / 'here') as here:
    here.scan(tmp_path / 'here' / 'runs')
    assert here.merge(tmp_path / 'there' / 'results.sqlite') == 1  # the file
    assert here.merge(tmp_path / 'there' / 'runs') == 0  # or its runs
    found = find(here, tmp_path / 'there' / 'runs' / 'b')
    assert found.training.path == str(tmp_path / 'there' / 'runs' / 'b')

    before = content(here.path)
    third = tmp_path / 'third' / 'runs'
    make_run(third / 'c', seed=2)  # good, but comes with what is not
    make_run(third / 'd', more=1e-5)
    message = refused(here.merge, tmp_path / 'third')
    assert 'loss=' in message and 'of 5 clients differ' in message
    assert str(third / 'd') in message and str(run) in message
    assert content(here.path) == before


def test_the_global_model_may_not_disagree_either(tmp_path):
  for name, accuracy in (('a', 41.5), ('b', 41.6)):
    result = {'global': {'accuracy': accuracy}}
    make_run(tmp_path / name, result=result)
  with Results.open(tmp_path) as results:
    results.add_run(tmp_path / 'a')
    message = refused(results.add_run, tmp_path / 'b')
  assert 'global.accuracy=41.6' in message and '41.5' in message


def test_other_data_for_the_same_settings_and_seed(tmp_path):
  make_run(tmp_path / 'a')
  make_run(tmp_path / 'b', data='others-clients')
  make_run(tmp_path / 'c', data='others-clients', seed=1)
  with Results.open(tmp_path) as results:
    results.add_run(tmp_path / 'a')
    results.add_run(tmp_path / 'c')
    message = refused(results.add_run, tmp_path / 'b')
  assert "got 'others-clients in" in message and 'images-clients' in message


def test_new_defaults_make_new_keys(tmp_path, monkeypatch):
  """Else a key would find what was trained with another default.

  The new key of one of these runs is the old key of the other.
  """
  slow = make_run(tmp_path / 'a', learning_rate=0.05)
  fast = make_run(tmp_path / 'b', learning_rate=0.1, seed=0)
  with Results.open(tmp_path) as results:
    results.scan(tmp_path)
    assert rate_of(results, slow) == 0.05
  defaults = {**keys.default_fields(), 'learning_rate': 0.05}
  monkeypatch.setattr(keys, 'default_fields', lambda: defaults)
  with Results.open(tmp_path) as results:
    assert rate_of(results, slow) == 0.05
    assert rate_of(results, fast) == 0.1
    assert results.scan(tmp_path) == 0


def rate_of(results, run):
  return find(results, run).settings.training.learning_rate


def test_runs_that_started_from_another(tmp_path):
  """The first is found wherever it was gathered; merging keeps the chain."""
  runs = tmp_path / 'runs'
  first = make_run(runs / 'z', model=b'1')
  digest = keys.model_digest(first)
  begun = {'data': f'images-clients+{digest}', 'init_from': str(first)}
  second = make_run(runs / 'a', **begun)
  key = keys.run_key(second)
  with Results.open(tmp_path) as results:
    assert results.scan(runs) == 2
    first.rename(tmp_path / 'away')
    assert results.add_run(make_run(tmp_path / 'b' / 'b', seed=1, **begun)) == 1
    assert results.scan(runs) == 0
  with Results.open(tmp_path / 'other') as other:
    assert other.merge(tmp_path / 'results.sqlite') == 3
    trainings = results_rows.read_trainings(other._connection)
  starts = {one.start for one in trainings.values()}
  assert starts == {'', keys.run_key(tmp_path / 'away')}
  assert key in trainings


def test_one_training_under_two_keys_of_an_older_version(tmp_path, monkeypatch):
  """With a default of a method written out, and without."""
  make_run(tmp_path / 'runs' / 'a')
  make_run(tmp_path / 'runs' / 'b', hp={'trainable': 'body'})
  with monkeypatch.context() as patched:
    patched.setattr(keys, 'default_hyperparameters', lambda method: {})
    with Results.open(tmp_path) as results:
      assert results.scan(tmp_path / 'runs') == 2
  before = content(tmp_path / 'results.sqlite')
  assert 'one training under two keys' in refused(Results.open, tmp_path)
  assert content(tmp_path / 'results.sqlite') == before
  (tmp_path / 'results.sqlite').unlink()
  with Results.open(tmp_path) as results:
    assert results.scan(tmp_path / 'runs') == 1  # both agree


def test_a_kill_in_the_middle_leaves_the_file_as_it_was(tmp_path, monkeypatch):
  run = make_run(tmp_path / 'a')
  make_run(tmp_path / 'b', seed=1)
  with Results.open(tmp_path) as results:
    results.add_run(run)
    before = content(results.path)
    insert = results_rows.insert_scores

    def killed(*arguments):
      insert(*arguments)
      raise KeyboardInterrupt

    monkeypatch.setattr(results_rows, 'insert_scores', killed)
    with pytest.raises(KeyboardInterrupt):
      results.scan(tmp_path)
    monkeypatch.undo()
    assert content(results.path) == before
    assert results.scan(tmp_path) == 1


def test_of_two_writers_one_waits(tmp_path, monkeypatch):
  monkeypatch.setattr(results_db, 'PATIENCE', 0.05)
  run = make_run(tmp_path / 'a')
  with Results.open(tmp_path) as first, Results.open(tmp_path) as second:
    with results_db.transaction(first._connection):
      message = refused(second.add_run, run)
    assert 'database is locked' in message
    assert second.add_run(run) == 1
    assert first.add_run(run) == 0


@pytest.mark.parametrize('damage', ['cut', 'text', 'table', 'trigger', 'older'])
def test_a_file_that_is_not_ours(tmp_path, damage):
  file = tmp_path / 'results.sqlite'
  with Results.open(tmp_path) as results:
    results.add_run(make_run(tmp_path / 'a'))
  if damage == 'cut':
    file.write_bytes(file.read_bytes()[:9000])
  elif damage == 'text':
    file.write_text('training,view\n' * 1000)
  else:
    with contextlib.closing(sqlite3.connect(file)) as connection:
      connection.execute(
        {
          'table': 'CREATE TABLE more (x)',
          'trigger': 'CREATE TRIGGER t AFTER INSERT ON scores BEGIN '
          'DELETE FROM trainings; END',
          'older': 'ALTER TABLE evaluations RENAME TO cells',
        }[damage]
      )
      connection.commit()
  before = file.read_bytes()
  assert 'move it away' in refused(Results.open, tmp_path)
  with Results.open(tmp_path / 'other') as other:
    assert str(file) in refused(other.merge, file)
  assert file.read_bytes() == before


@pytest.mark.parametrize(
  'change',
  [
    "UPDATE evaluations SET settings = '[1]'",
    "UPDATE evaluations SET result = 'no JSON'",
    "UPDATE evaluations SET training = 'none'",
  ],
)
def test_a_merged_file_with_odd_content(tmp_path, change):
  file = tmp_path / 'results.sqlite'
  with Results.open(tmp_path) as results:
    results.add_run(make_run(tmp_path / 'a'))
    results._connection.execute(change)
  with Results.open(tmp_path / 'other') as other:
    assert str(file) in refused(other.merge, file)


def test_what_cannot_be_added_is_a_sentence(tmp_path):
  run_dir.open_run(tmp_path / 'new', make_settings(), data='', log=print)
  with Results.open(tmp_path / 'results') as results:
    message = refused(results.add_run, tmp_path / 'new')
    assert 'a finished run' in message
    message = refused(results.merge, tmp_path / 'new')
    assert re.search('merge: got .*new', message)
    assert 'mistyped' in refused(results.merge, tmp_path / 'nowhere')
  (tmp_path / 'file').write_text('')
  refused(Results.open, tmp_path / 'file')
