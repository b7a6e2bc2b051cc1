"""The notebooks run from their first cell to their last, in a short form.

A notebook is read as JSON, so that no Jupyter is needed. Its code cells are
executed in order in one namespace. The constants of the cell that is tagged
`parameters` are replaced by those of SHORT; everything else runs as it stands.
"""

import ast
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / 'notebooks'
TAG = 'parameters'
SHORT = {
  'first_run': {'ROUNDS': 1},
  'your_own_data': {'ROUNDS': 1},
  'your_own_method': {'ROUNDS': 2, 'EVERY': 1, 'RATES': (0.1,)},
  'comparison': dict(
    METHODS=('fedavg', 'fedper'), RATES='0.01', SEEDS=2, ROUNDS=1
  ),
  'adapters': {'ROUNDS': 1, 'MORE': 1},
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


@pytest.mark.long
def test_first_run(tmp_path, monkeypatch, drawing):
  scope, figures = execute('first_run', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert (tmp_path / 'runs' / 'first_1_rounds' / 'fedavg').is_dir()
  accuracy = scope['wide']['fedbabu', 'finetuned']  # of load_results
  mean = scope['result']['views']['finetuned']['mean']
  assert accuracy.mean() == pytest.approx(mean)


@pytest.mark.long
def test_your_own_method(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_method', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert len(capsys.readouterr().out.splitlines()) == 2  # methods
  for rounds in scope['scores'].values():
    assert list(rounds) == [1, 2]


@pytest.mark.long
def test_your_own_data(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_data', tmp_path, monkeypatch)
  assert len(figures) == 1
  experiment = scope['experiment']
  sizes = experiment.train.count + experiment.test.count
  assert sizes.tolist() == np.bincount(scope['clients']).tolist()
  assert capsys.readouterr().out.count('clinic') == 10


@pytest.mark.long
def test_comparison(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('comparison', tmp_path, monkeypatch)
  assert len(figures) == 1 and scope['means'].shape == (2, 2)
  assert capsys.readouterr().out.count('fedper') == 3  # rate and both tables


@pytest.mark.long
def test_adapters(tmp_path, monkeypatch, drawing):
  scope, figures = execute('adapters', tmp_path, monkeypatch)
  assert len(figures) == 1
  assert scope['sent']['LoRA'] < scope['sent']['FedAvg'] / 5
  assert np.isfinite([*scope['result'].values()]).all()
