"""README, BUILD and docs/ are short, and name only what is there."""

import re
import runpy

import pytest
from pages import ROOT

import fedjax_pfl
from configs import common
from experiments.accelerators.compilation import PACKAGES
from experiments.commandline import read_settings
from experiments.reproduction import cells
from fedjax_pfl.algorithms import available, load, own_defaults
from fedjax_pfl.settings.schema import GROUPED

MOST_LINES = {'README.md': 110, 'BUILD.md': 160}
PAGES = [
  *(ROOT / name for name in MOST_LINES),
  *sorted((ROOT / 'docs').rglob('*.md')),
]
LINK = re.compile(r'\]\(([^)\s]+)\)')
HEADING = re.compile(r'^#+ (.*)$', re.MULTILINE)
FENCE = re.compile(r'^```.*?^```', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r'python (experiments/[^\n`]+)')
CONTINUED = re.compile(r'\\\n\s*')
DEFINED = re.compile(r"DEFINE_\w+\(\s*'([\w-]+)'")
FLAG = re.compile(r'--([\w-]+)')
FIELD = re.compile(r'--config\.([\w.]*\w)')
# `shards_per_client=10` in the tables of options.
OPTION = re.compile(r'`([\w.]+)=[^`]*`')
WHERE = re.compile(r'--where (\S+)')
CONFIG = re.compile(r'configs/\w+\.py(?::[\w,]+)?')
FILE = re.compile(r'`([\w/]+\.(?:py|md|csv))(?:: \w+)?`')
PLACEHOLDER = re.compile(r'[A-Z]{3,}')  # METHOD, METHOD_DATASET, NAME
# What runs write, and not the repository.
WRITTEN = {
  'mlflow_runs.py',
  'summary.csv',
  'tables/fedbabu_13.csv',
  'gait.py',
  'small.py',
}

ABSL = {'help', 'helpfull', 'flagfile'}


def commands_of(page):
  """Return every command of experiments/ in a page, each on one line."""
  return COMMAND.findall(CONTINUED.sub(' ', page.read_text()))


def anchors_of(page):
  """Return the anchors of a page's headings, as GitHub makes them."""
  text = FENCE.sub('', page.read_text())
  kept = (re.sub(r'[^\w\- ]', '', h.lower()) for h in HEADING.findall(text))
  return {heading.replace(' ', '-') for heading in kept}


@pytest.fixture(scope='module')
def fields():
  """Return every name that may follow --config."""
  settings = common.base().to_dict()
  names = {*settings} - {'hp', *GROUPED}
  names |= {f'{group}.{name}' for group in GROUPED for name in settings[group]}
  for name in available():
    names |= {f'hp.{field}' for field in own_defaults(name)}
  return names


def test_readme_and_build_are_short():
  for name, most in MOST_LINES.items():
    assert len((ROOT / name).read_text().splitlines()) <= most, name


def test_links_lead_to_files_and_headings():
  for page in PAGES:
    text = FENCE.sub('', page.read_text())
    for link in LINK.findall(text):
      if '://' in link:
        continue
      path, _, anchor = link.partition('#')
      target = (page.parent / path) if path else page
      assert target.is_file(), (page, link)
      assert not anchor or anchor in anchors_of(target), (page, link)


def test_commands_have_their_file_and_flags():
  for page in PAGES:
    for command in commands_of(page):
      file, *words = command.split()
      assert (ROOT / file).is_file(), (page, command)
      text = (ROOT / file).read_text()
      known = ABSL | {*DEFINED.findall(text)}
      for word in words:
        flag = FLAG.match(word)
        if flag and not word.startswith('--config.'):
          assert flag[1] in known, (page, command)


def test_fields_exist(fields):
  for page in PAGES:
    for name in FIELD.findall(page.read_text()):
      # hp.beta, hp.trim: of methods that are files.
      more = {'FIELD', 'hp.beta', 'hp.trim', 'hp.NAME'}
      assert name in fields | more, (page, name)


@pytest.mark.parametrize('name', ['data', 'methods'])
def test_options_exist(name, fields):
  text = (ROOT / 'docs' / f'{name}.md').read_text()
  for option in OPTION.findall(text):
    assert {option, f'hp.{option}'} & fields, option


def test_conditions_are_fields_of_tables():
  for page in PAGES:
    for conditions in WHERE.findall(page.read_text()):
      for condition in conditions.split(','):
        assert condition.partition('=')[0] in cells.FIELDS, (page, condition)


def test_files_exist():
  for page in PAGES:
    text = FENCE.sub('', page.read_text())
    for file in {*FILE.findall(text)} - WRITTEN:
      if not PLACEHOLDER.search(file):
        # `lock.py` under the heading of its room, else `models/registry.py`
        folders = 'fedjax_pfl', 'experiments', 'configs'
        places = [ROOT / file]
        places += [at for x in folders for at in (ROOT / x).rglob(file)]
        assert any(place.is_file() for place in places), (page, file)


def test_configs_exist():
  for page in PAGES:
    for config in set(CONFIG.findall(page.read_text())):
      if PLACEHOLDER.search(config) or config == 'configs/common.py':
        continue
      assert read_settings(str(ROOT / config))['algorithm'] in available()


@pytest.mark.parametrize('name', available())
def test_the_paper_of_every_method_is_cited(name):
  paper = (
    load(name).PAPER.removeprefix('arxiv.org/abs/').removeprefix('doi.org/')
  )
  cited = (ROOT / 'docs' / 'methods.bib').read_text()
  # By its name, which tables cite; baselines are of FedBABU's paper.
  assert f'{{{name},' in cited or (paper in cited and not needs_entry(name))


def needs_entry(name):
  return name not in ('centralized', 'local_only')


# ---- what stands around the code


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
