"""The notebooks run from their first cell to their last, in a short form.

A notebook is read as JSON, so that no Jupyter is needed. Its code cells are
executed in order in one namespace. The constants of the cell that is tagged
`parameters` are replaced by those of SHORT; everything else runs as it stands.
"""

import ast
import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import small_archives

from fedjax_pfl.data.preparation.download import ARCHIVES

FOLDER = Path(__file__).parents[1] / 'notebooks'
TAG = 'parameters'
SHORT = {
  'first_run': {'ROUNDS': 1},
  'your_own_method': dict(
    ROUNDS=2, EVERY=1, NUM_CLIENTS=6, COHORT=2, EXAMPLES=20
  ),
  'your_own_data': {'ROUNDS': 1},
  'your_own_code': {'ROUNDS': 2},
}
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
  before = matplotlib.get_backend()
  plt.switch_backend('Agg')
  yield
  plt.close('all')
  plt.switch_backend(before)


def test_every_notebook_has_a_short_form_and_no_outputs():
  assert {path.stem for path in FOLDER.glob('*.ipynb')} == set(SHORT)
  for name in SHORT:
    for cell in code_cells(read(name)):
      assert not cell['outputs'] and cell['execution_count'] is None


@pytest.mark.long
def test_first_run(tmp_path, monkeypatch, drawing):
  scope, figures = execute('first_run', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert (tmp_path / 'runs' / 'fedbabu_1_rounds').is_dir()
  accuracy = scope['accuracy']  # of the table that load_results returns
  mean = scope['result']['views']['finetuned']['mean']
  assert accuracy['finetuned'].mean() == pytest.approx(mean)


@pytest.mark.long
def test_your_own_method(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_method', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert len(capsys.readouterr().out.splitlines()) == 6  # 3 methods, 2 views
  for rounds in scope['scores'].values():
    assert list(rounds) == [1, 2]


@pytest.mark.long
def test_your_own_data(tmp_path, monkeypatch, drawing):
  name = 'fashion_mnist'
  archives, images = small_archives.write_archives(tmp_path / 'net', [name])
  monkeypatch.setitem(ARCHIVES, name, archives[name])
  scope, figures = execute('your_own_data', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert scope['images'].x.shape == images[name][0][0].shape
  sizes = scope['experiment'].train.count + scope['experiment'].test.count
  assert sizes.tolist() == np.bincount(scope['clients']).tolist()


@pytest.mark.long
def test_your_own_code(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_code', tmp_path, monkeypatch)
  assert len(figures) == 1
  assert 0 <= scope['result']['views']['finetuned']['recall'] <= 1
  assert scope['experiment'].train.x.shape == (675, 64, 2)
  assert scope['scores'].own['share_good'].shape == (6,)
  assert capsys.readouterr().out.count('% right') == 6
