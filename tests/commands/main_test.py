"""A command line that is wrong ends in one sentence and leaves no file."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from absl import flags
from finished_runs import make_run
from pages import ROOT
from run_directories import refused
from user_commands import load_command, refusal, run

from experiments import commandline
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config

DIGITS = 'configs/digits.py:fedbabu'


# ---- real processes


def test_a_mistake_is_a_sentence_and_leaves_no_file(tmp_path):
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  done = run('main', '--confg=x', '--workdir=a/b', cwd=tmp_path)
  assert '--help (did you mean --config?)' in refusal(done)
  assert done.stdout == ''
  assert done.stderr.count('\n') == 1
  assert [path.name for path in tmp_path.iterdir()] == ['configs']


def test_help_shows_a_command_its_flags_and_every_field():
  done = run('main', '--help')
  usage, found, fields = done.stdout.partition('Fields of a config')
  assert '--config=digits:fedbabu' in usage
  assert '--workdir: the directory of the run' in usage
  assert len(usage.splitlines()) < 35 and found and not done.stderr
  assert '  num_clients (100): registered clients, K' in fields
  assert done.returncode == 0


def test_help_may_be_cut_short():
  command = [sys.executable, 'experiments/main.py', '--help']
  with subprocess.Popen(
    command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  ) as shown:
    shown.stdout.close()
    assert shown.stderr.read() == b''


# ---- flags


@pytest.fixture
def parse(monkeypatch):
  """Return parse_words with flags of this test's own."""
  values = flags.FlagValues()
  flags.DEFINE_string('config', None, 'a config', flag_values=values)
  flags.DEFINE_string('workdir', None, 'a place', flag_values=values)
  monkeypatch.setattr(flags, 'FLAGS', values)

  def parse(*arguments):
    words = ['main.py', *arguments]
    return commandline.parse_words(words, ['config', 'workdir'])[0]

  return parse


def test_fields_may_come_before_the_config_twice_and_from_a_file(
  parse, tmp_path
):
  (tmp_path / 'flags').write_text('--config=a.py\n--config.rounds=4\n')
  overrides = parse(
    '--config.shards_per_client=4',
    f'--flagfile={tmp_path / "flags"}',
    '-config.finetune.trainable=body',
    '--workdir',
    'w',
    '--config.shards_per_client=5',
    '--config.data_dir=a=b',
  )
  assert overrides == {
    'shards_per_client': '5',
    'finetune.trainable': 'body',
    'data_dir': 'a=b',
    'rounds': '4',
  }
  assert (flags.FLAGS.config, flags.FLAGS.workdir) == ('a.py', 'w')


def test_the_home_folder_behind_an_equals_sign(parse, monkeypatch):
  """A run would be in a folder named ~."""
  monkeypatch.setenv('HOME', '/users/ada')
  parse('--config=a.py', '--workdir=~/runs/a')
  assert flags.FLAGS.workdir == '/users/ada/runs/a'
  assert parse_config({'init_from': '~/a'}).init_from == '/users/ada/a'


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ([], "got 'no --config', expected --config=..., a config"),
    (['--confg=a'], "got '--confg', expected a flag of this command"),
    (['--seed=1'], 'expected a flag of this command, or --config.seed'),
    (['--config=a', '--workdir=b', 'quick', '3'], "got 'quick 3', expected"),
    (['--config.seed', '5'], "got '--config.seed', expected --config.seed"),
  ],
)
def test_a_bad_flag_is_a_sentence(parse, arguments, words):
  message = refused(lambda: parse(*arguments))
  assert message.startswith('command line: got ')
  assert words in message


def test_an_old_name_of_a_flag_is_taken_with_a_warning(parse, capsys):
  parse('--config=a', '--folder=b')
  assert flags.FLAGS.workdir == 'b'
  assert '--folder is now --workdir' in capsys.readouterr().err
  assert "got '--output'" in refused(lambda: parse('--config=a', '--output=b'))


# ---- configs and their fields


def read(*overrides, config=str(ROOT / DIGITS)):
  pairs = [override.split('=', 1) for override in overrides]
  return commandline.read_settings(config, dict(pairs))


def test_the_argument_goes_to_the_config():
  assert read()['num_clients'] == 20 and read()['quick'] is False
  settings = read(config=str(ROOT / 'configs' / 'digits.py:ditto,quick'))
  assert settings['algorithm'] == 'ditto' and settings['quick'] is True
  message = refused(lambda: read(config=f'{ROOT / DIGITS},fast'))
  assert "got 'fast', expected an experiment, quick, or both" in message


@pytest.mark.parametrize(
  ('override', 'value'),
  [
    ('shards_per_client=4', 4),
    ('shards_per_client=4.5', 4.5),  # for check_settings to refuse
    ('client_fraction=1', 1.0),
    ('rounds=None', None),
    ('debug=true', True),
    ('data_dir=2024', '2024'),
    ('clients_per_chunk=auto', 'auto'),
    ('lr_milestones=(0.3, 0.6)', (0.3, 0.6)),
    ('save_clients=3', (3,)),
    ('views=initial, finetuned', ('initial', 'finetuned')),
  ],
)
def test_a_field_takes_the_kind_of_its_old_value(override, value):
  name = override.split('=')[0]
  got = read(override)[name]
  assert got == value and type(got) is type(value)


def test_fields_inside_others():
  settings = read('finetune.epochs=5', 'hp.trainable=full', 'finetune.new=1')
  assert settings['finetune']['epochs'] == (5,)
  assert settings['finetune']['new'] == 1  # for check_settings to refuse
  assert settings['hp'] == {'trainable': 'full'}
  assert 'seed has no fields of its own' in refused(lambda: read('seed.new=1'))


@pytest.mark.parametrize(
  ('name', 'text', 'words'),
  [
    ('absent.py', None, 'expected a Python file with a function get_config'),
    ('none.py', 'x = 1', 'none.py without get_config'),
    ('late.py', '\n\nimport nowhere', 'late.py, line 3: ModuleNotFoundError'),
    ('end.py', 'raise BaseException("x")', 'end.py, line 1: BaseException: x'),
    ('late3.py', 'def get_config():\n  pass', 'get_config returns NoneType'),
  ],
)
def test_a_config_that_does_not_work_is_a_sentence(tmp_path, name, text, words):
  path = tmp_path / name
  if text is not None:
    path.write_text(text)
  message = refused(lambda: read(config=str(path)))
  assert words in message
  assert ' digits.py' in message


def test_a_run_with_an_attack_is_told_beside_the_same_without(
  monkeypatch, tmp_path
):
  def trained(settings, path):
    assert not settings.attack and settings.aggregation.bears == 0.25
    make_run(path)

  config = {'client_fraction': 1.0, 'aggregation': 'median'}
  config |= {'num_clients': 4, 'attack': 'sign_flip', 'attackers': 0.25}
  names = load_command(monkeypatch, 'main.py')[0].__globals__
  here = SimpleNamespace(value=tmp_path)
  monkeypatch.setitem(names, 'WORKDIR', here)
  monkeypatch.setitem(names, 'run_experiment', trained)
  view = names['train_clean'](config, {'attackers': [1]})['initial']
  scores = run_dir.load_clients(tmp_path / 'clean').scores['initial']
  accuracy = np.delete(
    100 * scores.correct / scores.count, [1, 3]
  )  # 3: untrained
  assert np.isclose(view['mean'], accuracy.mean())
  assert view['num_clients'] == len(accuracy) and view['num_left_out'] == 2
