"""Every config resolves, validates and traces; its docstring has its command.

Configs are found, not named; nothing is compiled and no data are read.
"""

import importlib
import re
import shlex

import numpy as np
import pytest
from helpers import SHAPE, make_task, refused
from pages import ROOT

from configs import common, digits, pfllib
from experiments import commandline
from fedjax_pfl import algorithms
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.datasets import peek
from fedjax_pfl.data.images import Shape
from fedjax_pfl.evaluation.evaluate import check_views, view_names
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import outline
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build_method

NAMES = common.available()
FILES = sorted({name.partition(':')[0] for name in NAMES})
EXAMPLES = 60  # of a client: more than one batch
every_config = pytest.mark.parametrize('name', NAMES)
every_file = pytest.mark.parametrize('file', FILES)


def docstring(file):
  """Return the text of a file; a command in it goes over one line."""
  text = importlib.import_module(f'configs.{file}').__doc__
  return re.sub(r'\\\n\s*', '', text)


def check(settings):
  """Validate settings, and the hyperparameters and views of their method."""
  settings = parse_config(settings)
  task, shape = make_task(), Shape(SHAPE, 3)
  if settings.architectures.models:
    shape = build_method.peek_shape(settings.data)
    task = build_method.build_task(settings, shape)
  data = shapes_of_clients(shape, 2, EXAMPLES)
  stages = build_method.build_stages(settings, outline(task), clients=data)
  *_, (last, *states) = stage_shapes(stages, data)
  names = view_names(last.algorithm, *states, data)
  check_views(wanted_views(settings), names)


def wanted_views(settings):
  return [*settings.evaluation.views, *settings.evaluation.eval_views]


def test_every_file_but_the_helpers_is_a_config():
  files = {path.stem for path in (ROOT / 'configs').glob('*.py')}
  others = {'common', 'leaderboard', 'methods', 'own_folder', 'own_table'}
  others.add('million')  # it makes its examples
  assert files - {*FILES} == others
  methods = {common.load(name).algorithm for name in NAMES}
  assert methods == {*algorithms.available()}
  assert {*digits.EXPERIMENTS} == methods


@every_file
def test_a_file_without_an_argument_is_one_of_its_experiments(file):
  own = [name for name in NAMES if name.partition(':')[0] == file]
  default = common.load(file).to_dict()
  is_of_folder = default['dataset'] == 'pfllib'  # without which it is none
  assert is_of_folder or default in [
    common.load(name).to_dict() for name in own
  ]


@every_file
def test_commands_of_the_docstring_are_settings_that_validate(file):
  commands = re.findall(
    r'^  (fedjax-pfl train (?!.*=FOLDER).*)$', docstring(file), re.MULTILINE
  )
  assert commands, 'no command line'
  configs = {command.split()[2].partition(':')[0] for command in commands}
  assert f'--config={file}' in configs
  # Others begin with the run of another config, or go on from this one.
  assert len(configs) == 1 or 'init_from' in docstring(file)
  for line in commands:
    program, command, config, *fields, workdir = shlex.split(line)
    assert (program, command) == ('fedjax-pfl', 'train')
    assert workdir.startswith('--workdir=')
    pairs = [field.removeprefix('--config.').split('=') for field in fields]
    name = config.removeprefix('--config=')
    check(commandline.read_settings(name, dict(pairs)))


OF_FOLDER = {
  name: how
  for name, how in pfllib.AS_CODED.items()
  if how != pfllib.METHODS.get(name)
}


@pytest.mark.parametrize('method', OF_FOLDER)
def test_a_folder_of_pfllib_has_its_protocol(tmp_path, method):
  for split in ('train', 'test'):
    (tmp_path / split).mkdir()
    for client in range(3):
      x = np.zeros((9, 1, 28, 28), np.float32)
      with (tmp_path / split / f'{client}.npz').open('wb') as file:
        np.savez(file, data={'x': x, 'y': np.arange(9) % 4})
  config = common.load(f'pfllib:{method}').to_dict()
  config['data_dir'] = str(tmp_path)
  assert parse_config(config).data.num_clients == 3
  check(config)


@every_config
def test_config_holds_to_the_rules_and_quick_is_smaller(name):
  full, quick = (common.load(name, q) for q in (False, True))
  full.lock()
  with pytest.raises((AttributeError, KeyError)):
    full.learning_rat = 0.1
  assert (full.quick, quick.quick) == (False, True)
  is_natural = quick.partition == 'natural'  # has the clients of the data
  assert quick.num_clients <= 10 or is_natural
  assert 0 < quick.max_train_examples <= 1000
  assert quick.rounds <= 4 and quick.local_epochs == 1
  for field in ('algorithm', 'dataset', 'model', 'partition', 'hp'):
    assert quick.to_dict()[field] == full.to_dict()[field]
  for config in (full, quick):
    data = parse_config(config.to_dict()).data
    if data.partition in ('shards', 'pathological'):
      # Clients share the shards of a class equally.
      num_classes = peek(data.dataset, data.data_dir).num_classes
      assert data.num_clients * data.shards_per_client % num_classes == 0


@every_config
def test_views_of_the_whole_config_exist(name):
  """The full config fine-tunes for other epochs; views ask for no model."""
  check(common.load(name).to_dict())


@pytest.mark.parametrize(
  ('name', 'got', 'end'),
  [
    ('fedbabu_cifar10:quik', 'quik', 'quick (did you mean quick?).'),
    ('digits:fedbab,quick', 'fedbab', '(did you mean fedbabu?).'),
    ('digits:fedavg,fedbabu', 'fedavg,fedbabu', 'Choices: apfl, '),
  ],
)
def test_unknown_word_after_the_colon(name, got, end):
  message = refused(lambda: common.load(name))
  assert message.startswith(f'config argument: got {got!r}, expected ')
  assert end in message
