"""What stands around the code agrees with it."""

import re
from pathlib import Path

from experiments.accelerators.targets import PACKAGES

ROOT = Path(__file__).parents[1]


def read(name):
  return (ROOT / name).read_text(encoding='utf-8')


def test_pre_commit_takes_the_ruff_of_the_constraints():
  (pinned,) = re.findall(r'^ruff==(.+)$', read('constraints.txt'), re.MULTILINE)
  (rev,) = re.findall(r'rev: v(\S+)', read('.pre-commit-config.yaml'))
  assert rev == pinned


def test_compilers_of_cuda_are_those_of_the_pinned_jax():
  (jax,) = re.findall(r'^jax==(.+)$', read('constraints.txt'), re.MULTILINE)
  compilers = re.search(r'^COMPILERS := (.+\\\n.+)$', read('Makefile'), re.M)[1]
  pinned = dict(word.split('==') for word in compilers.split() if '==' in word)
  assert pinned['jax-cuda13-pjrt'] == pinned['jax-cuda13-plugin'] == jax
  names = {name for one in PACKAGES.values() for name in one.split()}
  assert {*pinned} == names


def test_no_two_files_of_tests_have_one_name():
  """Pytest imports them by it, and would stop at the second."""
  names = [path.name for path in (ROOT / 'tests').rglob('*_test.py')]
  assert len(names) == len({*names}), sorted(names)
