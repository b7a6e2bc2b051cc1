"""Imports go one way; what is heavy is loaded only when it is needed.

LAYERS is the picture of the package: a module may import what is named beside
it, and all of that stands above it.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = 'fedjax_pfl'
WORDS = ('errors', 'types')
LAYERS = {
  'errors': (),
  'types': (),
  'console': WORDS,
  'files': WORDS,
  'identity': (*WORDS, 'files'),
  'trees': WORDS,
  'losses': WORDS,
  'data': (*WORDS, 'files', 'data'),
  'models': (*WORDS, 'trees', 'losses', 'models'),
  'modelfile': (*WORDS, 'files'),
  'batches': WORDS,
  'local': (*WORDS, 'trees', 'batches'),
  'algorithm': WORDS,
  'personalize': (*WORDS, 'trees', 'batches', 'local'),
  'clusters': WORDS,
  'wide': (*WORDS, 'trees', 'losses'),
  'algorithms': (
    *WORDS,
    *('trees', 'losses', 'batches', 'local', 'personalize', 'algorithm'),
    *('clusters', 'wide'),
  ),
  'traffic': (*WORDS, 'trees', 'algorithm'),
  'sharing': (*WORDS, 'local', 'personalize', 'algorithm'),
  'cohorts': (*WORDS, 'trees', 'algorithm'),
  'chunks': (*WORDS, 'trees', 'algorithm', 'cohorts'),
  'fitting': (*WORDS, 'trees'),
  'mesh': (*WORDS, 'trees', 'cohorts', 'chunks'),
  'engine': (
    *WORDS,
    *('trees', 'algorithm', 'cohorts', 'chunks', 'fitting', 'mesh'),
  ),
  'waste': WORDS,
  'fitting': WORDS,
  'engine': (*WORDS, 'trees', 'algorithm', 'cohorts', 'chunks', 'fitting'),
  'feeding': (
    *WORDS,
    *('trees', 'algorithm', 'cohorts', 'chunks', 'fitting', 'engine'),
  ),
  'calibration': WORDS,
  'scoring': (*WORDS, 'batches', 'algorithm', 'calibration'),
  'evaluate': (*WORDS, 'trees', 'algorithm', 'cohorts', 'mesh', 'scoring'),
  'checkpoints': (*WORDS, 'files'),
  'store': (*WORDS, 'files', 'identity', 'checkpoints'),
  'lost': WORDS,
  'hosts': (*WORDS, 'console', 'lost', 'checkpoints', 'store'),
  'resultfile': WORDS,
  'resultrows': (*WORDS, 'resultfile'),
  'report': (
    *WORDS,
    *('files', 'identity', 'store', 'resultfile', 'resultrows', 'report'),
  ),
  'oracle': (*WORDS, 'report'),
  'settings': (
    *WORDS,
    *('data', 'models', 'local', 'algorithm', 'personalize', 'sharing'),
    'scoring',
  ),
  'start': (*WORDS, 'trees', 'modelfile', 'store'),
  'experiment': (
    *WORDS,
    *('data', 'models', 'local', 'algorithm', 'personalize', 'sharing'),
    *('cohorts', 'mesh', 'engine', 'evaluate', 'settings', 'start'),
    *('cohorts', 'engine', 'feeding', 'evaluate', 'settings', 'start'),
  ),
  'memory': (
    *WORDS,
    *('trees', 'algorithm', 'cohorts', 'chunks', 'engine', 'scoring'),
    *('evaluate', 'experiment'),
  ),
  'state': (
    *WORDS,
    *('console', 'algorithm', 'cohorts', 'engine', 'feeding', 'oracle'),
    *('store', 'report', 'experiment'),
  ),
  'whole': (
    *WORDS,
    *('data', 'algorithm', 'scoring', 'report', 'experiment'),
  ),
  'judging': (
    *WORDS,
    *('console', 'mesh', 'evaluate', 'scoring', 'report', 'experiment'),
    'whole',
  ),
  'keep': (*WORDS, 'trees', 'modelfile', 'store', 'experiment'),
  'lanes': (
    *WORDS,
    *('console', 'identity', 'trees', 'algorithm', 'cohorts', 'chunks'),
    *('fitting', 'engine', 'store', 'experiment', 'state', 'judging'),
  ),
  'advance': (
    *WORDS,
    *('traffic', 'algorithm', 'cohorts', 'mesh', 'engine', 'experiment'),
    *('state', 'lanes'),
    *('console', 'traffic', 'algorithm', 'cohorts', 'chunks', 'fitting'),
    *('console', 'traffic', 'algorithm', 'cohorts', 'chunks', 'waste'),
    'fitting',
    *('engine', 'feeding', 'experiment', 'state', 'lanes'),
  ),
  'train': (
    *WORDS,
    *('console', 'algorithm', 'mesh', 'evaluate', 'store', 'lost'),
    'hosts',
    *('report', 'oracle'),
    *('experiment', 'state', 'keep', 'whole', 'judging', 'lanes', 'advance'),
    *('console', 'algorithm', 'evaluate', 'store', 'report', 'oracle'),
    *('experiment', 'memory', 'state', 'keep', 'whole', 'judging', 'lanes'),
    'advance',
  ),
  'analysis': (
    *WORDS,
    *('checkpoints', 'data', 'batches', 'local', 'algorithm', 'personalize'),
    *('cohorts', 'engine', 'scoring', 'evaluate', 'modelfile', 'experiment'),
    *('state', 'train', 'analysis'),
  ),
  'reproduction': (
    *WORDS,
    *('console', 'files', 'data', 'algorithm', 'cohorts', 'chunks', 'engine'),
    *(
      'scoring',
      'checkpoints',
      'identity',
      'store',
      'report',
      'settings',
      'start',
    ),
    *('experiment', 'memory', 'state', 'judging', 'train', 'analysis'),
    'reproduction',
    *('resultfile', 'resultrows'),
  ),
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


def test_layers_are_in_order():
  """Without this, the table itself could have a circle."""
  above = []
  for layer, allowed in LAYERS.items():
    for other in allowed:
      assert other in above or other == layer, f'{layer} -> {other}'
    above.append(layer)
  assert 'algorithms' not in (*LAYERS['algorithms'], *LAYERS['train'])
  assert {layer_of(name) for name in MODULES} == set(LAYERS)


@every_module
def test_imports_go_one_way(module):
  layer = layer_of(module)
  back = inner_imports(MODULES[module]) - set(LAYERS[layer])
  assert not back, f'{module} imports {back}; {layer} may: {LAYERS[layer]}'


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
