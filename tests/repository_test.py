"""What stands around the code agrees with it."""

import re
import runpy

from pages import ROOT

import fedjax_pfl
from experiments.accelerators.compilation import PACKAGES


def read(name):
  return (ROOT / name).read_text(encoding='utf-8')


def test_pre_commit_takes_the_ruff_of_the_constraints():
  (pinned,) = re.findall(r'^ruff==(.+)$', read('constraints.txt'), re.MULTILINE)
  (rev,) = re.findall(r'rev: v(\S+)', read('.pre-commit-config.yaml'))
  assert rev == pinned


def test_the_version_is_that_of_the_citation():
  assert f'\nversion: {fedjax_pfl.__version__}\n' in read('CITATION.cff')


def test_links_of_readme_work_where_its_files_are_not():
  absolute = runpy.run_path(str(ROOT / '.ci' / 'wheel.py'))['absolute']
  text = 'see [docs](docs/a.md#b), ![p](docs/p.png) and [x](https://x.org)'
  assert absolute(text, '') == 'see docs,  and [x](https://x.org)'
  assert absolute(text, 'https://h/o/r') == (
    'see [docs](https://h/o/r/blob/main/docs/a.md#b), '
    '![p](https://h/o/r/raw/main/docs/p.png) and [x](https://x.org)'
  )
  assert not re.search(r'\]\((?!http)', absolute(read('README.md'), ''))


def test_compilers_of_cuda_are_those_of_the_pinned_jax():
  (jax,) = re.findall(r'^jax==(.+)$', read('constraints.txt'), re.MULTILINE)
  compilers = re.search(r'^COMPILERS := (.+\\\n.+)$', read('Makefile'), re.M)[1]
  pinned = dict(word.split('==') for word in compilers.split() if '==' in word)
  assert pinned['jax-cuda13-pjrt'] == pinned['jax-cuda13-plugin'] == jax
  names = {name for one in PACKAGES.values() for name in one.split()}
  assert {*pinned} == names
