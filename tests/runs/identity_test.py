"""A run directory: of one config and one data set, continued by the same."""

import json
import os
import subprocess

import pytest
from run_directories import CONFIG, begin, refused

from fedjax_pfl.runs import identity, lock, run_dir

OLDER = {'finetune': {'epochs': (5,), 'momentum': 0.5}, 'clip': {}}
YOUNGER = {**OLDER['finetune'], 'nesterov': False}
DEFAULTS = {
  'select': 'last',
  'seed': 3,  # a field that the run has
  'finetune': {**YOUNGER, 'momentum': 0.9},
  'clip': {'norm': 1.0},
}
LATER = {**OLDER, 'select': 'last', 'finetune': YOUNGER}


def snapshot(folder):
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob('*')
    if path.is_file()
  }


def test_config_json_names_what_ran_and_on_what(tmp_path):
  begin(tmp_path / 'deep' / 'run')
  stored = run_dir.load_config(tmp_path / 'deep' / 'run')
  machine = ['version', 'commit', 'jax', 'devices', 'processor']
  assert list(stored) == ['config', 'data', *machine]
  hp = {'lr': 0.1, 'decay_at': [0.5, 0.75], 'clip': 'inf', 'floor': 'nan'}
  assert stored['config']['hp'] == hp and stored['data'] == 'digits-1'
  assert all(' x ' in device for device in stored['devices'])
  assert stored['processor'].endswith(' cores')


@pytest.mark.parametrize(
  ('changes', 'got', 'expected'),
  [
    ({}, '', ''),
    (
      {'hp': {**CONFIG['hp'], 'lr': 0.2, 'nesterov': True}},
      "got {'hp.lr': 0.2, 'hp.nesterov': True}",
      "these are {'hp.lr': 0.1, 'hp.nesterov': '(absent)'}",
    ),
    ({'data': 'digits-2'}, "data: got 'digits-2'", 'expected digits-1'),
    # A field that is younger than the run counts as its default.
    (LATER, '', ''),
    (
      {**LATER, 'select': 'validation'},
      "got {'select': 'validation'}",
      "these are {'select': 'last'}",
    ),
  ],
)
def test_the_same_run_continues_and_another_is_refused_unchanged(
  tmp_path, changes, got, expected
):
  begin(tmp_path, **OLDER)
  before = snapshot(tmp_path)
  config = {**CONFIG, **OLDER, **changes}
  data = config.pop('data', 'digits-1')

  def begin_again():
    more = {'log': pytest.fail, 'defaults': DEFAULTS}
    run_dir.open_run(tmp_path, config, data=data, **more)

  if got:
    message = refused(begin_again)
    assert got in message and expected in message and 'seed' not in message
  else:
    begin_again()
  assert snapshot(tmp_path) == before


def test_another_version_devices_and_resumable_fields_are_logged(tmp_path):
  """The devices that there were, and the field of that name, are two things."""

  def begin_on(devices, log):
    config = {**CONFIG, 'devices': devices}
    run_dir.open_run(tmp_path, config, data='d', log=log, resumable=['devices'])

  begin_on(1, pytest.fail)
  path, logged = tmp_path / 'config.json', []
  stored = json.loads(path.read_text())
  before = {'jax': '0.1.2', 'devices': ['8 x gpu NVIDIA H100']}
  before['version'] = '0.1'
  path.write_text(json.dumps({**stored, **before}))
  begin_on(2, logged.append)
  begins = f'{tmp_path} was started with '
  words = [line.removeprefix(begins) for line in logged]
  assert [line.partition(':')[0] for line in words] == [
    f'version 0.1, this is {stored["version"]}',
    f'jax 0.1.2, this is {stored["jax"]}',
    f"devices ['8 x gpu NVIDIA H100'], this is {stored['devices']}",
    'devices 1, this is 2',
  ]
  assert ['CHANGELOG.md' in line for line in words] == [True] + [False] * 3


@pytest.mark.parametrize('content', ['', '{"config": {"se', '[]'])
def test_half_written_config(tmp_path, content):
  (tmp_path / 'config.json').write_text(content)
  (tmp_path / '.config.json.123.tmp').write_text('{"conf')
  begin(tmp_path)  # nothing had been computed
  assert sorted(os.listdir(tmp_path)) == [lock.NAME, 'config.json']
  begin(tmp_path).log(round=1, loss=1.0)
  (tmp_path / 'config.json').write_text(content)
  assert run_dir.devices_of(tmp_path) is None  # refused where it is opened
  message = refused(lambda: begin(tmp_path))
  assert 'which holds a damaged config.json' in message


def test_a_path_of_something_else(tmp_path):
  (tmp_path / 'file').write_text('mine')
  assert 'which holds file' in refused(lambda: begin(tmp_path))
  for path in (tmp_path / 'file', tmp_path / 'file' / 'below'):
    message = refused(begin, path)
    assert 'a directory that can be created and written' in message
  for blank in ('', ' '):
    assert 'the name of a directory' in refused(begin, blank)
  assert snapshot(tmp_path) == {'file': b'mine'}


# ---- the code that ran


def git(folder, *words):
  who = ['-c', 'user.name=a', '-c', 'user.email=a@b']
  subprocess.run(['git', *who, *words], cwd=folder, check=True, stdout=-3)


def test_results_that_are_written_meanwhile_are_no_edited_code(tmp_path):
  assert identity._commit(tmp_path) is None
  git(tmp_path, 'init')
  for name in ('code.py', 'results/summary.csv'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('1')
  git(tmp_path, 'add', '.')
  git(tmp_path, 'commit', '-m', 'one')
  commit = identity._commit(tmp_path)
  assert len(commit) == 40
  (tmp_path / 'results/summary.csv').write_text('2')
  (tmp_path / 'untracked').write_text('2')
  assert identity._commit(tmp_path) == commit
  (tmp_path / 'code.py').write_text('2')
  assert identity._commit(tmp_path) == f'{commit}-dirty'
