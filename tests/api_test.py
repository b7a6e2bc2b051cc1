"""The public names: documented, and with examples that run."""

import doctest
import importlib
import inspect
import itertools
import pkgutil
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import long
from pages import code_of

import fedjax_pfl as pfl

pytestmark = pytest.mark.usefixtures('quick_compiler')
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RECORDS = [
  name
  for name in pfl.__all__
  if hasattr(getattr(pfl, name), '__annotations__')
  and inspect.isclass(getattr(pfl, name))
]
# README's example trains; docs/howto/own_data.md plays rounds and scores them.
LONG = 'train', 'make_rounds', 'make_round', 'make_evaluate'
FUNCTIONS = [
  long(name) if name in LONG else name
  for name in pfl.__all__
  if not inspect.isclass(getattr(pfl, name))
]


# Their examples speak of settings, of a config, or of another machine.
GIVEN = {'Settings', 'replace', 'flat_settings', 'key', 'train_many', 'connect'}


def run_examples(text, name, more=()):
  """Return how many examples there are, and a report of those that fail."""
  names = {'pfl': pfl, 'np': np, 'jax': jax, 'jnp': jnp, 'optax': optax}
  names.update(more)
  test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
  report = []
  doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
  return len(test.examples), ''.join(report)


def test_the_names_are_sorted_and_their_examples_run():
  assert pfl.__all__ == sorted(pfl.__all__)
  number, report = run_examples(pfl.__doc__, 'fedjax_pfl')
  assert number and not report, report


@pytest.mark.parametrize('name', FUNCTIONS)
def test_a_function_has_arguments_results_and_an_example(
  name, tmp_path, monkeypatch
):
  function = getattr(pfl, name)
  text = inspect.getdoc(function)
  arguments, _, returns = text.partition('\nReturns:\n')
  described = {*re.findall(r'\w+', arguments.partition('\nArgs:\n')[2])}
  assert {*inspect.signature(function).parameters} <= described
  assert returns
  monkeypatch.chdir(tmp_path)
  number, report = run_examples(text, name)
  assert number and not report, report


def test_the_examples_of_what_is_not_public_run():
  tried, public = 0, [getattr(pfl, name) for name in pfl.__all__]
  for place in pkgutil.walk_packages(pfl.__path__, 'fedjax_pfl.'):
    if place.name.endswith('__main__'):
      continue
    module = importlib.import_module(place.name)
    for name, code in [*vars(module).items()]:
      is_here = getattr(code, '__module__', '') == place.name
      text = (is_here and inspect.getdoc(code)) or ''
      if '>>> ' in text and name not in GIVEN and code not in public:
        number, report = run_examples(text, name, vars(module))
        assert not report, report
        tried += number
  assert tried >= 40


@pytest.mark.parametrize('name', RECORDS)
def test_every_field_of_a_record_is_explained(name):
  record = getattr(pfl, name)
  text = inspect.getdoc(record)
  lines = inspect.getsource(record).splitlines()
  for field in record.__annotations__:
    explained = [
      line
      for before, line in itertools.pairwise(lines)
      if re.match(rf' +{field}: ', line)
      and ('#' in line or before.lstrip().startswith('#'))
    ]
    described = re.search(rf'^ +{field}: ', text, re.MULTILINE)
    assert explained or described, field
  _, report = run_examples(text, name)
  assert not report, report


# ---- examples of README and of the page for your data


def test_a_run_prints_accuracies(capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  code = code_of('README.md')[0].replace("'rounds': 16", "'rounds': 4")
  assert "'rounds': 4" in code
  exec(compile(code, 'README.md', 'exec'), {})
  *_, initial, finetuned = capsys.readouterr().out.splitlines()
  assert initial.split()[0] == 'initial'
  assert float(finetuned.split()[1]) > float(initial.split()[1])


def test_rounds_on_arrays_are_made(capsys):
  scope = {}
  exec(compile(code_of('docs/howto/own_data.md')[-1], 'page', 'exec'), scope)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines[:3]] == ['0', '1', '2']
  assert lines[3].startswith('[') and len(lines) == 4
  assert int(scope['server'].round) == 3
