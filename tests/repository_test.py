"""What stands around the code agrees with it."""

import re
from configparser import ConfigParser
from pathlib import Path

from configs import common
from experiments.accelerators.targets import PLATFORMS

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
  names = {name for one in PLATFORMS.values() for name in one['packages']}
  assert {*pinned} == names


def test_the_license_is_the_one_of_the_package():
  metadata = ConfigParser()
  metadata.read_string(read('setup.cfg'))
  assert metadata['metadata']['license'] == 'Apache-2.0'
  text = read(metadata['metadata']['license_files'])
  first, second = text.split('\n', 3)[1:3]
  assert first.strip() == 'Apache License'
  assert second.strip() == 'Version 2.0, January 2004'
  assert 'END OF TERMS AND CONDITIONS' in text


def test_ci_begins_with_the_oldest_python():
  oldest = re.search(r'python_requires = >=(\S+)', read('setup.cfg'))[1]
  versions = re.search(
    r"python-version: \['(.+)'\]", read('.github/workflows/ci.yml')
  )[1].split("', '")
  assert versions[0] == oldest and len(versions) > 1


def test_renamed_fields_are_fields_of_the_config():
  _, table = read('CHANGELOG.md').split('Fields of a config have new names')
  rows = re.findall(
    r'^  \| `(\S+)` \| `(\S+)` \|$', table.partition('- ')[0], re.MULTILINE
  )
  assert len(rows) > 20
  config = common.base()
  for old, new in rows:
    section, _, name = new.rpartition('.')
    if section == 'hp':  # fields of a method, not of all configs
      continue
    fields = config[section] if section else config
    assert name in fields and old.rpartition('.')[2] not in fields, (old, new)


def test_no_two_files_of_tests_have_one_name():
  """Pytest imports them by it, and would stop at the second."""
  names = [path.name for path in (ROOT / 'tests').rglob('*_test.py')]
  assert len(names) == len({*names}), sorted(names)
