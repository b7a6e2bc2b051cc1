"""A program is traced for its target, not for this machine."""

from pathlib import Path

import jax
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.target import compiling_for, target

PACKAGE = Path(__file__).parents[2] / 'fedjax_pfl'
# What is decided while the program runs, about this machine.
AT_RUN_TIME = {'advance.py', 'target.py'}


def test_this_machine_unless_told_otherwise():
  assert target() == jax.default_backend()
  with compiling_for('tpu'):
    assert target() == 'tpu'
    with compiling_for('gpu'):
      assert target() == 'gpu'
    assert target() == 'tpu'
  assert target() == jax.default_backend()


def test_it_ends_with_an_exception():
  with pytest.raises(RuntimeError), compiling_for('tpu'):
    raise RuntimeError
  assert target() == jax.default_backend()


def test_an_unknown_platform():
  wrong = compiling_for('cuda')
  with pytest.raises(BadInput, match='Choices: cpu, gpu, tpu'), wrong:
    pass


def test_nothing_that_is_traced_asks_for_the_backend():
  asking = {
    file.name
    for file in PACKAGE.rglob('*.py')
    if 'default_backend' in file.read_text()
  }
  assert asking == AT_RUN_TIME
