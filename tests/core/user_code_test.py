"""Code of the user's own: when it is run, and what is refused."""

import functools
import sys

import jax.numpy as jnp
import pytest
from helpers import refused

from fedjax_pfl.core.user_code import (
  UserCode,
  call,
  check_loaded,
  digest_of,
  is_code,
  load_code,
  value_of,
)

LOSS = 'def loss(logits, labels):\n  return logits[:, 0]\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
  """Return the file own.py of the present directory, with a loss."""
  monkeypatch.chdir(tmp_path)
  file = tmp_path / 'own.py'
  file.write_text(LOSS)
  return file


def load(name):
  return load_code({'loss': name})['loss']


def test_a_name_gets_a_digest_and_its_value(file):
  config = {'loss': 'own.py:loss', 'metrics': ('own.py:loss',), 'model': 'a:b'}
  loaded = load_code(config)
  name = loaded['loss']
  assert name.startswith('own.py:loss#') and len(digest_of(name)) == 12
  assert loaded['metrics'] == (name,) and loaded['model'] == 'a:b'
  assert name.value.__name__ == 'loss' and is_code(str(name))
  assert loaded['metrics'][0].value is name.value  # the file ran once
  assert load_code(loaded) == loaded
  assert [path.name for path in file.parent.iterdir()] == ['own.py']


def test_other_content_of_the_same_size_is_other_code(file):
  before = load('own.py:loss')
  file.write_text(LOSS.replace('0', '1'))
  after = load('own.py:loss')
  assert digest_of(before) != digest_of(after)
  logits = jnp.array([[0, 1]])
  assert before.value(logits, None) == 0 and after.value(logits, None) == 1
  assert load(str(after)) == after
  message = refused(load, str(before))
  assert 'the file as it was' in message


def test_all_names_that_are_not_loaded_are_named_at_once(file):
  names = {
    'model': 'a.py:Net#0123456789ab',
    'loss': 'cross_entropy',
    'metrics': ('b.py:f', 'b.py:g'),
    'partition': load('own.py:loss'),
  }
  message = refused(check_loaded, names)
  assert message.startswith('model, metrics: got')
  assert (
    '--config.model=a.py:Net --config.metrics=b.py:f,b.py:g on a ' in message
  )


def test_only_loaded_code_has_a_value(file):
  name = load('own.py:loss')
  assert value_of('loss', name) is name.value
  for stored in ('own.py:loss', str.__str__(name)):
    message = refused(value_of, 'loss', stored)
    assert '--config.loss=own.py:loss' in message
    assert 'nothing that a run directory' in message
  assert isinstance(name, UserCode) and not isinstance(name + '', UserCode)


CASES = {
  'no name': ('own.py', LOSS, 'Choices: own.py:NAME'),
  'two names': ('own.py:loss,own.py:loss', LOSS, 'expected one FILE.py:NAME'),
  'no file': ('owns.py:loss', LOSS, '(did you mean own.py?)'),
  'another name': ('own.py:lost', LOSS, '(did you mean loss?)'),
  'an import': (
    'own.py:loss',
    'import jax\n\nimport no_such_module\n',
    'got "own.py, line 3: ModuleNotFoundError: No module named \'no_such_',
  ),
  'an exit': ('own.py:loss', 'raise SystemExit(3)', 'line 1: SystemExit: 3'),
  'a bare end': ('own.py:loss', 'raise BaseException()', 'line 1: BaseExcept'),
}


@pytest.mark.parametrize('case', CASES)
def test_sentence_for(file, case):
  name, content, words = CASES[case]
  file.write_text(content)
  message = refused(load, name)
  assert message.startswith('loss: got ') and words in message
  assert not [module for module in sys.modules if module == 'own']


def test_code_that_ends_the_program_is_a_sentence(file):
  run = functools.partial(call, 'loss', sys.exit, of=sys.exit, cause='a slip')
  assert 'SystemExit: ' in refused(run)
  file.write_text('raise KeyboardInterrupt')  # the user's own
  with pytest.raises(KeyboardInterrupt):
    load('own.py:loss')
