"""The notebooks run from their first cell to their last, in a short form.

A notebook is read as JSON, so that no Jupyter is needed. Its code cells are
executed in order in one namespace. The constants of the cell that is tagged
`parameters` are replaced by those of SHORT; everything else runs as it stands.
"""

import ast
import json

import numpy as np
import pytest
from pages import ROOT

FOLDER = ROOT / 'notebooks'
TAG = 'parameters'
SHORT = {
  'first_run': {'ROUNDS': 1},
  'your_own_data': {'ROUNDS': 1},
  'your_own_method': {'ROUNDS': 2, 'EVERY': 1, 'RATES': (0.1,)},
  'comparison': dict(
    METHODS=('fedavg', 'fedper'), RATES='0.01', SEEDS=2, ROUNDS=1
  ),
  'adapters': {'ROUNDS': 1, 'MORE': 1},
  'spreadsheet': {'ROUNDS': 1, 'SEEDS': (0,)},
}
LARGEST = 60_000  # bytes of a picture
pytestmark = pytest.mark.usefixtures('quick_compiler')


def read(name):
  return json.loads((FOLDER / f'{name}.ipynb').read_text(encoding='utf-8'))


def code_cells(notebook):
  return [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']


def shortened(source, values):
  """Return the source of a cell of constants with these values instead."""
  tree = ast.parse(source)
  constants = {node.targets[0].id: node for node in tree.body}
  for name, value in values.items():
    constants[name].value = ast.Constant(value)
  return ast.unparse(ast.fix_missing_locations(tree))


def execute(name, folder, monkeypatch):
  """Run the short form in a folder; return its variables and its figures."""
  import matplotlib.pyplot as plt

  figures, scope = [], {'__name__': '__main__'}

  def show():
    figures.append(plt.gcf())
    figures[-1].canvas.draw()

  monkeypatch.chdir(folder)
  monkeypatch.syspath_prepend(folder)  # restores sys.path at the end
  monkeypatch.setattr(plt, 'show', show)
  for number, cell in enumerate(code_cells(read(name)), 1):
    source = ''.join(cell['source'])
    if TAG in cell['metadata'].get('tags', []):
      source = shortened(source, SHORT[name])
    exec(compile(source, f'{name}.ipynb, code cell {number}', 'exec'), scope)
  return scope, figures


@pytest.fixture
def drawing():
  """Draw without a screen, and leave no figure behind."""
  import matplotlib
  import matplotlib.pyplot as plt

  before = matplotlib.get_backend()
  plt.switch_backend('Agg')
  yield
  plt.close('all')
  plt.switch_backend(before)


def test_every_notebook_has_a_short_form_and_is_run():
  """From its first cell to its last, without an error, with small pictures."""
  assert {path.stem for path in FOLDER.glob('*.ipynb')} == set(SHORT)
  for name in SHORT:
    cells = code_cells(read(name))
    counts = [cell['execution_count'] for cell in cells]
    assert counts == [*range(1, len(cells) + 1)], name
    outputs = [one for cell in cells for one in cell['outputs']]
    assert not any(one['output_type'] == 'error' for one in outputs), name
    pictures = [one.get('data', {}).get('image/png') for one in outputs]
    sizes = [len(''.join(one)) * 3 // 4 for one in pictures if one]
    assert sizes and max(sizes) < LARGEST, name


def is_of_result(own):
  """What is read, or predicted, is what the run was scored by."""
  if 'wide' in own:
    mean = own['result']['views']['finetuned']['mean']
    return own['wide']['fedbabu', 'finetuned'].mean() == pytest.approx(mean)
  return 100 * own['right'].mean() == pytest.approx(own['scored'])


def has_all_clients(own):
  data = own['experiment']
  sizes = (data.train.count + data.test.count).tolist()
  return sizes == np.bincount(own['clients']).tolist()


# Of each notebook: its figures, and what its variables have to be.
ENDS = {
  'first_run': (2, is_of_result),
  'your_own_method': (
    2,
    lambda own: {(*rounds,) for rounds in own['scores'].values()} == {(1, 2)},
  ),
  'your_own_data': (1, has_all_clients),
  'comparison': (1, lambda own: own['means'].shape == (2, 2)),
  'spreadsheet': (1, is_of_result),
  'adapters': (1, lambda own: 5 * own['sent']['LoRA'] < own['sent']['FedAvg']),
}


@pytest.mark.long
@pytest.mark.parametrize('name', SHORT)
def test_a_notebook(name, tmp_path, monkeypatch, drawing):
  own, figures = execute(name, tmp_path, monkeypatch)
  number, is_right = ENDS[name]
  assert len(figures) == number and is_right(own)
