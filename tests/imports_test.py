"""Imports go one way; what is heavy is loaded only when it is needed.

ORDER is the picture of the package: a module may import what stands before it.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = 'fedjax_pfl'
# From the words that all speak to what whole tables are made of.
PICTURE = """
errors types console files lock stopping events seals identity trees losses data
models modelfile batches local algorithm personalize clusters wide algorithms
traffic sharing cohorts chunks fitting waste mesh engine feeding calibration
scoring evaluate checkpoints store lost hosts resultfile resultrows report
oracle rules settings hyperparameters start experiment memory state whole
judging keep lanes guard advance train analysis reproduction
"""
ORDER = PICTURE.split()
# Those that know less than what stands above them: methods speak of one client.
ONLY = {
  'data': 'errors types files data',
  'models': 'errors types trees losses models',
  'algorithms': 'errors types trees losses batches local algorithm personalize '
  'clusters wide',
  'store': 'errors types console files lock events seals identity checkpoints',
  'report': 'errors types files identity store resultfile resultrows report',
}
NEVER = {'tensorflow', 'torch', 'torchvision', 'keras'}
# Slow to load: only inside the functions that need them.
LATE = {'tensorflow_datasets', 'array_record', 'PIL', 'sklearn', 'matplotlib'}
LATE |= {'orbax', 'tensorboardX', 'rich', 'pandas', 'jinja2'}


CELLS = 'fedjax_pfl.reproduction.cells'


def modules():
  """Return {dotted name below the package: file}, but for its front door."""
  files = sorted((ROOT / PACKAGE).rglob('*.py'))
  names = {
    '.'.join(file.relative_to(ROOT / PACKAGE).with_suffix('').parts): file
    for file in files
  }
  names = {name.removesuffix('.__init__'): file for name, file in names.items()}
  del names['__init__']  # lists the public names; nothing may import them
  return names


MODULES = modules()
every_module = pytest.mark.parametrize('module', MODULES)


def imports_of(file, top_level=False):
  """Yield the dotted name of everything that a file imports."""
  tree = ast.parse(file.read_text())
  for node in tree.body if top_level else ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{file.name}: relative import'
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def layer_of(name):
  return name.split('.')[0]


def inner_imports(file):
  """Return the layers of the package that a file imports."""
  names = [name for name in imports_of(file) if layer_of(name) == PACKAGE]
  assert PACKAGE not in names, f'{file.name}: imports the whole package'
  return {layer_of(name.removeprefix(f'{PACKAGE}.')) for name in names}


def test_every_module_has_its_place():
  assert sorted({layer_of(name) for name in MODULES}) == sorted(ORDER)
  for layer, allowed in ONLY.items():
    own = ORDER.index(layer) + 1
    assert set(allowed.split()) <= set(ORDER[:own]), layer


@every_module
def test_imports_go_one_way(module):
  layer = layer_of(module)
  above = ORDER[: ORDER.index(layer)]
  if MODULES[module].parent.name != PACKAGE:  # a file of a folder
    above = [*above, layer]
  allowed = {*above} - {'algorithms'}  # found by name, never imported
  if layer in ONLY:
    allowed &= {*ONLY[layer].split()}
  back = inner_imports(MODULES[module]) - allowed
  assert not back, f'{module} imports {back}; {layer} may: {sorted(allowed)}'


@every_module
def test_heavy_imports_wait(module):
  everything = {layer_of(name) for name in imports_of(MODULES[module])}
  assert not everything & NEVER
  at_once = {layer_of(name) for name in imports_of(MODULES[module], True)}
  assert not at_once & LATE


def test_configs_import_their_base_alone():
  files = sorted((ROOT / 'configs').glob('*.py'))
  assert len(files) > 2
  for file in files:
    names = {layer_of(name) for name in imports_of(file, top_level=True)}
    expected = 'ml_collections' if file.stem == 'common' else 'configs'
    assert names <= {expected}, file.name
  for file in (ROOT / 'configs' / 'tables').glob('[!c]*.py'):  # but for common
    names = {*imports_of(file)}
    cells = {name for name in names if name.startswith(PACKAGE)}
    assert {layer_of(name) for name in names - cells} <= {'configs'}, file.name
    assert {name.rpartition('.')[0] for name in cells} <= {CELLS}, file.name


def test_package_loads_nothing_heavy():
  """Asked in a process of its own: this one has loaded much."""
  program = (
    'import sys, fedjax_pfl, fedjax_pfl.experiment, fedjax_pfl.train\n'
    'print(*{name.split(".")[0] for name in sys.modules})'
  )
  run = subprocess.run(
    [sys.executable, '-c', program],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  loaded = set(run.stdout.split())
  assert {'jax', PACKAGE} <= loaded
  heavy = {'tensorflow_datasets', 'matplotlib', 'sklearn', 'pandas'}
  assert not loaded & (NEVER | heavy)
