"""A run directory: of one config and one data set, continued by the same."""

import json
import os

import numpy as np
import pytest
from run_directories import CONFIG, begin, refused

from fedjax_pfl.runs import lock, run_dir


def snapshot(folder):
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob('*')
    if path.is_file()
  }


def test_config_json_names_what_ran_and_on_what(tmp_path):
  begin(tmp_path / 'deep' / 'run')
  stored = run_dir.load_config(tmp_path / 'deep' / 'run')
  assert list(stored) == [
    'config',
    'data',
    'version',
    'commit',
    'jax',
    'devices',
    'processor',
  ]
  assert stored['config']['hp'] == {
    'lr': 0.1,
    'decay_at': [0.5, 0.75],
    'clip': 'inf',
  }
  assert stored['data'] == 'digits-1'
  assert all(' x ' in device for device in stored['devices'])
  assert stored['processor'].endswith(' cores')


def test_same_config_continues_and_rewrites_nothing(tmp_path):
  begin(tmp_path)
  before = snapshot(tmp_path)
  begin(tmp_path, log=pytest.fail)
  assert snapshot(tmp_path) == before


def test_another_config_names_the_fields_and_changes_nothing(tmp_path):
  begin(tmp_path)
  before = snapshot(tmp_path)
  hp = {**CONFIG['hp'], 'lr': 0.2, 'nesterov': True}
  message = refused(lambda: begin(tmp_path, hp=hp))
  assert "got {'hp.lr': 0.2, 'hp.nesterov': True}" in message
  assert "these are {'hp.lr': 0.1, 'hp.nesterov': '(absent)'}" in message
  assert 'seed' not in message
  message = refused(lambda: begin(tmp_path, data='digits-2'))
  assert "data: got 'digits-2', expected digits-1" in message
  assert snapshot(tmp_path) == before


def test_another_version_devices_and_resumable_fields_are_logged(
  tmp_path,
):
  """The devices that there were, and the field of that name, are two things."""

  def begin_on(devices, log):
    config = {**CONFIG, 'devices': devices}
    run_dir.open_run(tmp_path, config, data='d', log=log, resumable=['devices'])

  begin_on(1, pytest.fail)
  path, logged = tmp_path / 'config.json', []
  stored = json.loads(path.read_text())
  before = {'jax': '0.1.2', 'devices': ['8 x gpu NVIDIA H100']}
  path.write_text(json.dumps({**stored, **before}))
  begin_on(2, logged.append)
  assert logged == [
    f'{tmp_path} was started with {name} {old}, this is {new}: if numbers '
    'differ, then in their last digits.'
    for name, old, new in (
      ('jax', '0.1.2', stored['jax']),
      ('devices', ['8 x gpu NVIDIA H100'], stored['devices']),
      ('devices', 1, 2),
    )
  ]


def test_a_field_that_is_younger_than_the_run_counts_as_its_default(tmp_path):
  def begin_now(select, **more):
    config = {**CONFIG, 'select': select, 'splits': (1, 2)}
    defaults = {'select': 'last', 'splits': (1, 2), 'seed': 3}
    run_dir.open_run(tmp_path, config, data='d', defaults=defaults, **more)

  begin(tmp_path, data='d')
  before = snapshot(tmp_path)
  begin_now('last', log=pytest.fail)
  assert snapshot(tmp_path) == before
  message = refused(lambda: begin_now('validation'))
  assert "got {'select': 'validation'}" in message
  assert "these are {'select': 'last'}" in message


def test_so_does_one_inside_of_a_record(tmp_path):
  older = {'finetune': {'epochs': (5,), 'momentum': 0.5}, 'clip': {}}
  younger = {**older['finetune'], 'nesterov': False}
  defaults = {'finetune': {**younger, 'momentum': 0.9}, 'clip': {'norm': 1.0}}

  def begin_now(**changes):
    config = {**CONFIG, 'clip': {}, 'finetune': {**younger, **changes}}
    run_dir.open_run(tmp_path, config, data='d', defaults=defaults)

  begin(tmp_path, data='d', **older)
  begin_now()
  message = refused(lambda: begin_now(nesterov=True))
  assert "got {'finetune.nesterov': True}" in message
  message = refused(lambda: begin_now(momentum=0.9))
  assert "got {'finetune.momentum': 0.9}" in message


def test_a_setting_that_json_cannot_hold(tmp_path):
  message = refused(lambda: begin(tmp_path / 'a', hp={'act': np.tanh}))
  assert message.startswith('config.hp.act: got <ufunc')
  assert not (tmp_path / 'a').exists()


@pytest.mark.parametrize('content', ['', '{"config": {"se', '[]', '{}'])
def test_half_written_config(tmp_path, content):
  (tmp_path / 'config.json').write_text(content)
  (tmp_path / '.config.json.123.tmp').write_text('{"conf')
  begin(tmp_path)  # nothing had been computed
  assert sorted(os.listdir(tmp_path)) == [lock.NAME, 'config.json']
  begin(tmp_path).log(round=1, loss=1.0)
  (tmp_path / 'config.json').write_text(content)
  message = refused(lambda: begin(tmp_path))
  assert 'whose config.json is damaged' in message


def test_a_path_of_something_else(tmp_path):
  (tmp_path / 'file').write_text('mine')
  assert 'which holds file' in refused(lambda: begin(tmp_path))
  for path in (tmp_path / 'file', tmp_path / 'file' / 'below'):
    message = refused(lambda path=path: begin(path))
    assert 'a directory that can be created and written' in message
  assert os.listdir(tmp_path) == ['file']
  assert (tmp_path / 'file').read_text() == 'mine'


@pytest.mark.skipif(os.geteuid() == 0, reason='root may write anywhere')
def test_a_directory_that_may_not_be_written(tmp_path):
  begin(tmp_path / 'run')
  for path in (tmp_path / 'run', tmp_path / 'new'):
    path.mkdir(exist_ok=True)
    path.chmod(0o500)
    message = refused(lambda path=path: begin(path))
    path.chmod(0o700)
    assert 'a directory that can be created and written' in message
