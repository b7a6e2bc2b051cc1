"""Imports go one way; what is heavy is loaded only when it is needed.

ROOMS is the picture of the package: a room may import what stands above it.
"""

import ast
import subprocess
import sys

import pytest
from pages import ROOT

PACKAGE = 'fedjax_pfl'
# The rooms, from the words that all speak to what whole tables are made of. A
# room imports what stands on lines above its own, and nothing beside it.
ROOMS = """
core
data models runs
client
federated
around
algorithms
evaluation
settings
training
results
analysis compare
"""
# The command, its marker of types, and links to configs/ and experiments/.
OTHERS = {'__init__.py', '__main__.py', 'py.typed', 'shipped'}
LEVELS = [line.split() for line in ROOMS.split('\n') if line]
# Those that know less than what stands above them: methods speak of one client.
ONLY = {
  'algorithms': {'core', 'data', 'models', 'client', 'around'},
}
# What comes after a run, in layers: each imports those before it.
RESULTS = 'runs', 'statistics', 'tables', 'charts', 'page'
NEVER = {'tensorflow', 'torch', 'torchvision', 'keras'}
NEVER |= {'experiments', 'configs'}  # they import the package
# Slow to load: only inside the functions that need them.
LATE = {'tensorflow_datasets', 'array_record', 'PIL', 'sklearn', 'matplotlib'}
LATE |= {'tensorboardX', 'rich', 'pandas', 'pyarrow', 'jinja2'}
LATE |= {'wandb', 'dp_accounting', 'safetensors', 'onnx'}  # optional


ALGORITHMS = f'{PACKAGE}.algorithms.'
FOUND_BY = 'available', 'load', 'needs_body', 'own_defaults', 'paper_name'
KERNELS, TARGET = f'{PACKAGE}.models.ops', f'{PACKAGE}.core.target'


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


def rooms_above(room):
  """Return the rooms that stand above this one."""
  (place,) = (n for n, level in enumerate(LEVELS) if room in level)
  return {above for level in LEVELS[:place] for above in level}


def test_the_package_is_its_rooms():
  entries = {path.name for path in (ROOT / PACKAGE).iterdir()}
  rooms = {room for level in LEVELS for room in level}
  assert entries - {'__pycache__'} == rooms | OTHERS


@pytest.mark.parametrize('room', [room for level in LEVELS for room in level])
def test_imports_go_one_way_and_heavy_ones_wait(room):
  allowed = ONLY.get(room, rooms_above(room)) | {room}
  for file in sorted((ROOT / PACKAGE / room).rglob('*.py')):
    names = {*imports_of(file)}
    assert PACKAGE not in names, f'{file} imports the whole package'
    own = {name for name in names if layer_of(name) == PACKAGE}
    back = {name.split('.')[1] for name in own} - allowed
    assert not back, f'{file} imports {back}; {room} may: {sorted(allowed)}'
    if room != 'algorithms':  # methods are found by name, never imported
      named = {name for name in own if name.startswith(ALGORITHMS)}
      assert named <= {f'{ALGORITHMS}{name}' for name in FOUND_BY}, file
    assert not {layer_of(name) for name in names} & NEVER, file
    assert not {layer_of(name) for name in imports_of(file, True)} & LATE, file


def test_kernels_are_behind_one_door():
  """They know jax and the target alone; two files of models/ know them."""
  models = ROOT / PACKAGE / 'models'
  doors = {models / 'layers.py', models / 'replace_layers.py'}
  libraries = {'jax', 'numpy', *sys.stdlib_module_names}
  for file in (ROOT / PACKAGE).rglob('*.py'):
    names = {*imports_of(file)}
    kernels = {name for name in names if name.startswith(KERNELS)}
    if file.parent == models / 'ops':
      others = {n for n in names - kernels if not n.startswith(TARGET)}
      assert {*map(layer_of, others)} <= libraries, file
    else:
      assert not kernels or file in doors, file


@pytest.mark.parametrize('layer', RESULTS)
def test_what_comes_after_a_run_is_in_layers(layer):
  later = {*RESULTS[RESULTS.index(layer) + 1 :]}
  for file in (ROOT / PACKAGE / 'results' / layer).rglob('*.py'):
    names = [name.split('.') for name in imports_of(file)]
    back = {name[2] for name in names if name[:2] == [PACKAGE, 'results']}
    assert not back & later, f'{file} imports {back & later}'


def test_package_loads_nothing_heavy():
  """Asked in a process of its own: this one has loaded much."""
  program = (
    'import sys, fedjax_pfl, fedjax_pfl.training.loop\n'
    'print(*{name.split(".")[0] for name in sys.modules})'
  )
  words = [sys.executable, '-c', program]
  run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
  loaded = set(run.stdout.split())
  assert {'jax', PACKAGE} <= loaded
  heavy = {'tensorflow_datasets', 'matplotlib', 'sklearn', 'pandas'}
  assert not loaded & (NEVER | heavy)
