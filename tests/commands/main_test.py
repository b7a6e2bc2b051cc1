"""A command line that is wrong ends in one sentence and leaves no file."""

import subprocess
import sys
from concurrent import futures

import helpers
import pytest
from absl import flags
from user_commands import ROOT, refusal, run

from experiments import commandline

DIGITS = 'configs/digits.py:fedbabu'


def refused(call):
  message = helpers.refused(call)
  assert 'Choices: ' in message
  return message


# ---- real processes

MISTAKES = {
  '--workdir=a/b': "command line: got 'no --config'",
  f'--config={DIGITS} --workdir=a/b --confg=x': (
    'Choices: --config, --workdir, --forecast, --coordinator, '
    '--num_processes, --process_id, --config.<field>=<value>, --help '
    '(did you mean --config?)'
  ),
  f'--config={DIGITS} --workdir=a/b --config.shards_per_clients=5': (
    '(did you mean shards_per_client?)'
  ),
  f'--config={DIGITS},quick --workdir=a/b --config.shards_per_client=many': (
    "shards_per_client: got 'many', expected a whole number of shards"
  ),
  f'--config={DIGITS} --workdir=a/b --config.views=inital': (
    '(did you mean initial?)'
  ),
}


@pytest.fixture(scope='module')
def mistakes(tmp_path_factory):
  """Return every mistake's process, each run in a folder of its own."""

  def play(flags):
    folder = tmp_path_factory.mktemp('cwd')
    (folder / 'configs').symlink_to(ROOT / 'configs')
    done = run('main', *flags.split(), cwd=folder)
    return done, sorted(path.name for path in folder.iterdir())

  with futures.ThreadPoolExecutor(2) as pool:
    return dict(zip(MISTAKES, pool.map(play, MISTAKES), strict=True))


@pytest.mark.parametrize('flags', MISTAKES)
def test_a_mistake_is_a_sentence_and_leaves_no_file(mistakes, flags):
  done, files = mistakes[flags]
  assert MISTAKES[flags] in refusal(done) and done.stdout == ''
  assert done.stderr.count('\n') == 1
  assert files == ['configs']


def test_help_shows_a_command_its_flags_and_every_field():
  done = run('main', '--help')
  usage, found, fields = done.stdout.partition('Fields of a config')
  assert '--config=configs/digits.py:fedbabu' in usage
  assert '--workdir: the directory of the run' in usage
  assert len(usage.splitlines()) < 35 and found and not done.stderr
  assert '  num_clients (100): registered clients, K' in fields
  assert done.returncode == 0


def test_what_is_no_mistake_of_the_user_keeps_its_traceback(tmp_path):
  (tmp_path / 'command.py').write_text(
    'from experiments import commandline\n'
    'def main():\n'
    '  raise ValueError("ours")\n'
    'commandline.run(main)\n'
  )
  done = subprocess.run(
    [sys.executable, str(tmp_path / 'command.py')],
    cwd=ROOT, env={'PYTHONPATH': str(ROOT)}, capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 1
  assert 'Traceback' in done.stderr and 'ValueError: ours' in done.stderr


# ---- flags


@pytest.mark.parametrize(
  ('text', 'found'),
  [
    ('', [{}]),
    ('finetune.trainable=body', [{'finetune.trainable': 'body'}]),
    (
      'dirichlet_beta=1.0,0.5',
      [{'dirichlet_beta': '1.0'}, {'dirichlet_beta': '0.5'}],
    ),
  ],
)
def test_variants_of_a_field(text, found):
  assert commandline.variants('--vary', text) == found


@pytest.mark.parametrize('text', ['beta', '=1,2', 'beta=', 'beta=1,,2'])
def test_variants_that_are_not_there(text):
  message = refused(lambda: commandline.variants('--vary', text))
  assert message.startswith(f"--vary: got '{text}', expected a field")


@pytest.fixture
def parse(monkeypatch):
  """Return parse_flags with flags of this test's own."""
  values = flags.FlagValues()
  flags.DEFINE_string('config', None, 'a config', flag_values=values)
  flags.DEFINE_string('workdir', None, 'a place', flag_values=values)
  monkeypatch.setattr(flags, 'FLAGS', values)

  def parse(*arguments):
    return commandline.parse_flags(
      ['main.py', *arguments], required=['config', 'workdir']
    )

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


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ([], "got 'no --config', expected --config=..., a config"),
    (['--config='], "got 'no --config'"),
    (['--config=a'], "got 'no --workdir', expected --workdir=..., a place"),
    (['--config=a', '--workdir'], 'Missing value for flag --workdir'),
    (['--confg=a'], "got '--confg', expected a flag of this command"),
    (['--config=a', '--workdir=b', 'quick', '3'], "got 'quick 3', expected"),
    (
      ['--config.shards_per_client', '5'],
      "got '--config.shards_per_client', expected --config.sha",
    ),
    (['--flagfile=nowhere'], 'Unable to open flagfile'),
  ],
)
def test_a_bad_flag_is_a_sentence(parse, arguments, words):
  message = refused(lambda: parse(*arguments))
  assert message.startswith('command line: got ')
  assert words in message


def test_a_command_for_runs_takes_fields_of_their_configs(monkeypatch):
  def parse(*words):
    values = flags.FlagValues()
    flags.DEFINE_multi_string('run', [], 'a directory', flag_values=values)
    monkeypatch.setattr(flags, 'FLAGS', values)
    return commandline.parse_flags(['analyse.py', *words], ['run'])

  overrides = parse('--run=a', '--config.data_dir=d', '--run=b')
  assert overrides == {'data_dir': 'd'} and flags.FLAGS.run == ['a', 'b']
  message = refused(parse)
  assert "got 'no --run', expected --run=..., a directory. Choices" in message


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
    ('shards_per_client=many', 'many'),
    ('client_fraction=1', 1.0),
    ('client_fraction=1e-1', 0.1),
    ('rounds=7', 7),
    ('rounds=None', None),
    ('debug=true', True),
    ('debug=0', False),
    ('debug=maybe', 'maybe'),
    ('data_dir=2024', '2024'),
    ('data_dir=', ''),
    ('clients_per_chunk=4', 4),
    ('clients_per_chunk=auto', 'auto'),
    ('lr_milestones=(0.3, 0.6)', (0.3, 0.6)),
    ('lr_milestones=[0.3]', (0.3,)),
    ('lr_milestones=()', ()),
    ('save_clients=3', (3,)),
    ('save_clients=1,2', (1, 2)),
    ('views=initial', ('initial',)),
    ('views=initial, finetuned', ('initial', 'finetuned')),
    ("views=('initial',)", ('initial',)),
    ('new=(', '('),
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


TYPED = """from configs import common
def get_config(arg=""):
  return common.base(arg, shards_per_client="many")"""


@pytest.mark.parametrize(
  ('name', 'text', 'words'),
  [
    ('absent.py', None, 'expected a Python file with a function get_config'),
    ('text.txt', 'x = 1', 'expected a Python file with a function get_config'),
    ('none.py', 'x = 1', 'none.py without get_config'),
    ('wrong.py', 'x = \n', 'SyntaxError: invalid syntax (wrong.py, line 1)'),
    ('late.py', '\n\nimport nowhere', 'late.py, line 3: ModuleNotFoundError'),
    ('late3.py', 'def get_config():\n  pass', 'get_config returns NoneType'),
    ('typed.py', TYPED, 'typed.py, line 3: TypeError'),
  ],
)
def test_a_config_that_does_not_work_is_a_sentence(tmp_path, name, text, words):
  path = tmp_path / name
  if text is not None:
    path.write_text(text)
  message = refused(lambda: read(config=str(path)))
  assert words in message
  assert ' digits.py' in message
  written = [name] if text is not None else []
  assert [p.name for p in tmp_path.iterdir() if p.is_file()] == written


def test_the_sentence_about_a_config_is_short_from_far_away_too(
  tmp_path, monkeypatch
):
  far = tmp_path.joinpath(*['below'] * 20)
  far.mkdir(parents=True)
  monkeypatch.chdir(far)
  message = refused(lambda: read(config='configs/fedbabu_cifar.py'))
  assert 'did you mean fedbabu_cifar10.py?' in message
  assert len(message) < 2500
