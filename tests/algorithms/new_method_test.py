"""A method of one's own, or a wrapper, is one file outside, and a flag."""

import inspect
import pathlib
import re

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import make_data, make_task, refused
from pages import code_of

import fedjax_pfl as pfl
from experiments.commandline import read_settings
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.settings import parse_config
from fedjax_pfl.settings.validate import traced_names
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.build_method import build_stages
from fedjax_pfl.training.keys import training_key
from fedjax_pfl.training.program import Program

CONFIG = 'configs/digits.py:fedavg,quick'
METHOD, RECIPE, WRAPPER = code_of('docs/howto/own_method.md')
METHOD += """

def with_metric(algorithm):
  def local_update(*args):
    client, up, metrics = algorithm.local_update(*args)
    return client, up, {**metrics, 'finite': jnp.zeros(())}

  return algorithm._replace(local_update=local_update)


def with_two(algorithm):
  def local_update(*args):
    return algorithm.local_update(*args)[:2]

  return algorithm._replace(local_update=local_update)


def with_view(algorithm):
  def personalize(*args):
    return {**algorithm.personalize(*args), 'validation_x': args[0].params}

  return algorithm._replace(personalize=personalize)
"""
PRIVATE, END = 'PRIVATE_LEAVES = (', ')\n\n  a'
RNG = '{"rng": jax.random.key(0)}'
AS_TUPLE = """
from fedjax_pfl import Finetuning, LocalTraining


class HParams(NamedTuple):
  train: LocalTraining = LocalTraining()
  finetune: Finetuning = Finetuning()
"""


@pytest.fixture
def method(tmp_path):
  """Return 'FILE.py:FedAvgM'."""
  path = tmp_path / 'avgm.py'
  path.write_text(METHOD)
  return f'{path}:FedAvgM'


def build(method, **hp):
  changes = {f'hp.{name}': value for name, value in hp.items()}
  settings = read_settings(CONFIG, {'algorithm': method, **changes})
  return build_experiment(settings)


def test_it_runs_from_the_command_line(method, quick_compiler):
  config = read_settings(CONFIG, {'algorithm': method, 'hp.beta': '0.5'})
  (stage,) = build_stages(parse_config(config), make_task())
  key, cohort, data = jax.random.key(0), jnp.array([3]), make_data()
  states = pfl.begin(stage, data, key)
  round_fn = pfl.make_round(stage.algorithm, clients_per_chunk=1)
  for _ in range(2):
    before, (*states, metrics) = (
      states[0],
      round_fn(*states, cohort, data, key),
    )
  server, norm = states[0], optax.tree.norm
  assert server.round == 2 and jnp.isfinite(metrics['loss']).all()
  step = jax.tree.map(jnp.subtract, server.params, before.params)
  assert abs(norm(step) / norm(server.velocity) - 1) < 1e-4
  assert norm(before.velocity) > 0


def test_a_metric_may_be_a_number_of_python(method):
  text = METHOD.replace('algorithm),)', 'with_metric(algorithm)),)')
  text = text.replace("'finite': jnp.zeros(())", "'rate': 0.1")
  pathlib.Path(method.partition(':')[0]).write_text(text)
  experiment = build(method)
  ((_, *states),) = stage_shapes(experiment.stages, experiment.train)
  round_fn = Program(experiment).rounds(0, states[0])
  rest = jnp.array([3]), experiment.train, jax.random.key(0)
  *_, metrics = jax.eval_shape(round_fn, {}, *states, *rest)
  assert metrics['rate'].shape == (1,)


def test_it_is_called_by_its_name_and_known_by_its_content(method):
  first = build(method).settings
  assert paper_name(first.algorithm) == 'FedAvgM'
  path = pathlib.Path(method.partition(':')[0])
  path.write_text(f'{METHOD}\n')
  second = build(method).settings
  stored = parse_config({'algorithm': str(first.algorithm)})  # runs no file
  assert training_key(first, '') != training_key(second, '')
  assert paper_name(stored.algorithm) == 'FedAvgM'
  message = refused(build_experiment, stored)
  assert f'--config.algorithm={method}' in message


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('def build(', 'def make(', 'expected a name that avgm.py defines'),
    ('def build(task, hp)', 'def build(task)', 'with build(task)'),
    ('HParams(global_model.HParams):', 'HParams:', 'no NamedTuple HParams'),
    ('.federated_ave', '.federated_avv', "no attribute 'federated_avvraging'"),
    ('hp.beta * v', '1 // 0 * v', 'avgm.py, line 37'),
    (f'velocity{END}', f'(){END}', 'another server after a round of fedavgm'),
    (f'velocity{END}', f'{RNG}{END}', 'a key of jax.random in the server'),
    ('algorithm),)', 'algorithm))', 'write (stage,), with a comma'),
    ('algorithm),)', 'with_metric(algorithm)),)', 'a metric named finite'),
    ('algorithm),)', 'with_two(algorithm)),)', 'update that returns 2 values'),
    ('algorithm),)', 'with_view(algorithm)),)', "a view named 'validation_x'"),
    ('server.round + 1', 'server.round', 'leaves server.round as it is'),
    ('class H', f'{PRIVATE}"head",)\n\nclass H', 'head in the upload'),
    ('class H', f'{PRIVATE}"hed",)\n\nclass H', 'hed, which nobody has'),
    ('class H', f'{PRIVATE}"hed")\n\nclass H', "PRIVATE_LEAVES 'hed'"),
  ],
)
def test_what_is_wrong_with_it_is_one_sentence(method, old, new, words):
  path = pathlib.Path(method.partition(':')[0])
  path.write_text(METHOD.replace(old, new))
  message = refused(build, method)
  assert message.startswith('algorithm: got '), message
  assert words in message.replace(str(path.parent) + '/', ''), message


def test_its_hyperparameters_have_rules_if_they_are_a_record(method):
  """Those of a NamedTuple may be anything, and are constants of a program."""
  ruled = build(method, beta='0.5').settings
  assert 'hp.beta' in traced_names(ruled)
  message = refused(lambda: build(method, beta='1.5'))
  assert message.startswith('hp.beta: got 1.5, expected a momentum')
  text = METHOD.replace('class HParams(global_model.HParams):\n', AS_TUPLE)
  text = re.sub(r'field\((0.9), .*\)', r'\1', text)
  pathlib.Path(method.partition(':')[0]).write_text(text)
  plain = build(method, beta='1.5').settings
  assert plain.hp == {'beta': 1.5} and 'hp.beta' not in traced_names(plain)
  assert 'momentum' in traced_names(plain)


def test_the_recipe_of_the_page_is_a_method(tmp_path):
  path = tmp_path / 'robust_head.py'
  path.write_text(RECIPE)
  robust = build(f'{path}:RobustHead', trim='0.2')
  assert robust.settings.hp['trim'] == 0.2
  assert '0.5' in refused(lambda: build(f'{path}:RobustHead', trim='0.5'))


def test_a_misspelt_method_or_hyperparameter_has_its_choices(method):
  assert '(did you mean fedavg?)' in refused(build, 'fedavgg')
  assert 'Choices: beta' in refused(lambda: build(method, betas='3'))


# ---- a wrapper ---------------------------------------------------------------


@pytest.fixture
def wrapper(tmp_path):
  """Return 'FILE.py:noisy'."""
  path = tmp_path / 'noise.py'
  path.write_text(WRAPPER)
  return f'{path}:noisy'


def wrapped(wrapper, **changes):
  settings = read_settings(CONFIG, {'around': wrapper, **changes})
  return build_experiment(settings)


def test_a_wrapper_adds_noise_to_what_clients_send(wrapper, quick_compiler):
  """Inside of what is compressed; and it is another training."""
  plain, noisy = wrapped(''), wrapped(wrapper)
  args, ends = (make_data(), jax.random.key(0)), []
  for own in (plain, noisy):
    (stage,) = build_stages(own.settings, make_task())
    states = pfl.begin(stage, *args)
    round_fn = make_round(stage.algorithm, clients_per_chunk=1, mesh=None)
    ends.append(round_fn(*states, jnp.array([3]), *args)[0].params)
  moved = jax.tree.leaves(jax.tree.map(jnp.subtract, *ends))
  moved = jnp.concatenate([leaf.ravel() for leaf in moved])
  assert len(moved) == 43 and abs(moved.std() - 0.01) < 3e-3
  keys = {training_key(own.settings, '') for own in (plain, noisy)}
  assert len(keys) == 2
  packed = wrapped(wrapper, compression='qsgd').stages[0].algorithm
  assert 'noisy' in str(inspect.unwrap(packed.local_update).__qualname__)


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('  return stage._', '  stage._', 'NoneType from noise.py:noisy'),
    ('SIGMA * ', 'SIGMA / 0 * ', 'noise.py, line 15: ZeroDivisionError'),
    ('noised), metrics', 'noised), {}', 'with the metrics '),
  ],
)
def test_what_is_wrong_with_a_wrapper_is_one_sentence(wrapper, old, new, words):
  path = pathlib.Path(wrapper.partition(':')[0])
  path.write_text(WRAPPER.replace(old, new))
  message = refused(wrapped, wrapper)
  assert message.startswith('around: got '), message
  assert words in message.replace(str(path.parent) + '/', ''), message
