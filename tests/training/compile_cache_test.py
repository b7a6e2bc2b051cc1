"""Compiled programs are stored for the next start; damaged ones replaced.

And what a run says of a form of convolutions that takes long to compile.
"""

import os
import warnings

import jax
import jax.numpy as jnp
import pytest
from small_runs import make_experiment

from fedjax_pfl.core import progress
from fedjax_pfl.models import registry
from fedjax_pfl.training import compile_cache, loop

NAMES = (
  'jax_compilation_cache_dir',
  'jax_persistent_cache_min_compile_time_secs',
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  """Let a command of this user's begin: nothing given, an empty folder."""
  before = {name: getattr(jax.config, name) for name in NAMES}
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setattr(warnings, 'showwarning', warnings.showwarning)
  jax.config.update('jax_compilation_cache_dir', None)
  yield tmp_path / 'cache' / 'programs'
  for name, value in before.items():
    jax.config.update(name, value)
  jax.experimental.compilation_cache.compilation_cache.reset_cache()


def enable():
  logged = []
  compile_cache.cache_programs(logged.append)
  jax.experimental.compilation_cache.compilation_cache.reset_cache()
  return logged


def compute():
  """Compile a program anew, as another process would."""
  return float(jax.jit(lambda x: jnp.sin(x) + 41)(0.0))


def entries(folder):
  return sorted(folder.glob('*/jit__lambda*-cache'))


def test_a_program_is_stored_in_a_folder_of_this_machine(cache, capfd):
  assert not enable()
  assert compute() == 41
  (entry,) = entries(cache)
  assert entry.parent.name == compile_cache.machine()
  assert entry.parent.stat().st_mode & 0o077 == 0  # no one else's code
  before = entry.stat().st_mtime_ns
  assert compute() == 41
  assert entry.stat().st_mtime_ns == before
  assert capfd.readouterr() == ('', '')


def test_an_entry_that_is_cut_short_is_written_again(cache, recwarn):
  """As a process leaves it that is killed while it writes."""
  enable()
  compute()
  (entry,) = entries(cache)
  content = entry.read_bytes()
  entry.write_bytes(content[: len(content) // 2])
  assert compute() == 41
  (entry,) = entries(cache)
  assert len(entry.read_bytes()) > len(content) // 2
  assert not recwarn.list


@pytest.mark.parametrize('missing', ['there is a file', 'no home', 'a file'])
def test_a_run_goes_on_without_a_cache(cache, monkeypatch, missing):
  if missing == 'a file':
    (cache.parent.parent / 'file').write_text('')
    given = str(cache.parent.parent / 'file')
    jax.config.update('jax_compilation_cache_dir', given)
  elif missing == 'no home':
    monkeypatch.delenv('FEDJAX_PFL_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', '~nobody-at-all/.cache')
  else:
    cache.parent.write_text('not a folder')
  (sentence,) = enable()
  assert sentence.startswith('Compiled programs are not stored, each start ')
  assert jax.config.jax_compilation_cache_dir is None
  assert compute() == 41


def test_what_was_used_the_longest_ago_goes_first(tmp_path):
  folder = tmp_path / 'machine'
  folder.mkdir()
  for age in range(6):
    (folder / f'{age}').write_bytes(b'0' * 100)
    os.utime(folder / f'{age}', (1000 - age, 1000 - age))
  compile_cache.prune(tmp_path, limit=600)
  assert len(list(folder.iterdir())) == 6
  compile_cache.prune(tmp_path, limit=599)
  assert sorted(path.name for path in folder.iterdir()) == ['0', '1']


def test_the_folder_of_the_users_choice(cache, tmp_path):
  """In a command, and in a program of the user's own."""
  given = tmp_path / 'own' / 'one'
  jax.config.update('jax_compilation_cache_dir', str(given))
  compile_cache.cache_unless_set()
  assert not enable()
  compute()
  assert [*given.glob('jit__lambda*')] and not cache.exists()
  jax.config.update('jax_compilation_cache_dir', None)
  compile_cache.cache_unless_set()
  assert jax.config.jax_compilation_cache_dir.startswith(str(cache))


def test_a_training_of_the_users_own_program_stores_its_programs(monkeypatch):
  class Asked(Exception):
    pass

  def ask():
    raise Asked

  monkeypatch.setattr(compile_cache, 'cache_unless_set', ask)
  with pytest.raises(Asked):
    loop.train(None, 'run')


@pytest.mark.parametrize(
  ('changes', 'seconds', 'platform', 'says'),
  [
    ({}, 75, 'gpu', True),
    ({}, 60, 'gpu', False),
    ({}, 75, 'cpu', False),
    ({'conv_impl': 'gemm'}, 75, 'gpu', False),  # the user's choice
    ({'precision': 'mixed'}, 75, 'gpu', False),  # auto is fused
    ({'name': 'convnet4'}, 75, 'gpu', False),  # its gemm was measured
    ({'name': 'model.py:Mine'}, 75, 'gpu', False),
  ],
)
def test_a_slow_form_that_no_gpu_has_run_names_one(
  monkeypatch, changes, seconds, platform, says
):
  monkeypatch.setattr(registry, 'target', lambda: platform)
  form = {'name': 'mobilenet', 'conv_impl': 'auto', 'precision': 'float32'}
  text = registry.advice(**form | changes, seconds=seconds)
  words = (
    'Compiling took 75 s. For mobilenet conv_impl=auto is gemm, which was not '
    'run on a GPU; conv_impl=lax was measured on one.'
  )
  assert text == words * says
  assert all(
    registry.MODELS[name].on_gpu == 'gemm' for name in registry.RAN_ON_GPU
  )


def test_a_run_gives_this_advice_after_its_first_round(monkeypatch, tmp_path):
  def advise(*form, seconds):
    return ' '.join(form) if seconds > 1e-6 else ''

  logged = []
  monkeypatch.setattr(registry, 'advice', advise)
  monkeypatch.setattr(progress, 'log', logged.append)
  loop.train(make_experiment(rounds=1, eval_every=1), tmp_path / 'run')
  assert logged.count('convnet3 auto float32') == 1
