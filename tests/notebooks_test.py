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
  'your_own_method': {
    'ROUNDS': 2,
    'EVERY': 1,
    'NUM_CLIENTS': 6,
    'COHORT': 2,
    'EXAMPLES': 20,
  },
  'your_own_data': {'ROUNDS': 1},
  'your_own_code': {'ROUNDS': 2},
}
pytestmark = pytest.mark.usefixtures('quick_compiler')
every_notebook = pytest.mark.parametrize('name', SHORT)


def read(name):
  return json.loads((FOLDER / f'{name}.ipynb').read_text(encoding='utf-8'))


def code_cells(notebook):
  return [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']


def tags(cell):
  return cell['metadata'].get('tags', [])


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
    figures[-1].savefig(folder / f'{len(figures)}.png')

  monkeypatch.chdir(folder)
  monkeypatch.syspath_prepend(folder)  # restores sys.path at the end
  monkeypatch.setattr(plt, 'show', show)
  for number, cell in enumerate(code_cells(read(name)), 1):
    source = ''.join(cell['source'])
    if TAG in tags(cell):
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


def test_every_notebook_has_a_short_form():
  assert {path.stem for path in FOLDER.glob('*.ipynb')} == set(SHORT)


@every_notebook
def test_it_is_stored_without_outputs(name):
  notebook = read(name)
  assert notebook['nbformat'] == 4
  for cell in code_cells(notebook):
    assert not cell['outputs'] and cell['execution_count'] is None


@every_notebook
def test_the_first_code_cell_has_the_constants(name):
  first, *others = code_cells(read(name))
  assert TAG in tags(first) and not any(TAG in tags(cell) for cell in others)


def test_first_run(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('first_run', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert [path.name for path in tmp_path.glob('runs/fedbabu_*')] == [
    'fedbabu_1_rounds'
  ]
  accuracy = scope['accuracy']  # of the table that load_results returns
  assert accuracy.shape == (20, 2)
  for view in ('initial', 'finetuned'):
    mean = scope['result']['views'][view]['mean']
    assert accuracy[view].mean() == pytest.approx(mean)
  assert 'round 1/1' in capsys.readouterr().out


def test_your_own_method(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_method', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert len(capsys.readouterr().out.splitlines()) == 6  # 3 methods, 2 views
  for rounds in scope['scores'].values():
    assert list(rounds) == [1, 2]
    for views in rounds.values():
      for score in views.values():
        assert score.correct.shape == (6,)
        assert np.isfinite(score.loss).all()


@pytest.mark.long
def test_your_own_data(tmp_path, monkeypatch, capsys, drawing):
  archives, images = small_archives.write_archives(
    tmp_path / 'net', ['fashion_mnist']
  )
  monkeypatch.setitem(ARCHIVES, 'fashion_mnist', archives['fashion_mnist'])
  scope, figures = execute('your_own_data', tmp_path, monkeypatch)
  assert len(figures) == 2
  assert scope['images'].x.shape == images['fashion_mnist'][0][0].shape
  assert scope['counts'].sum() == 1442 and len(scope['counts']) == 20
  first = scope['result']['views']['finetuned']
  assert first['num_clients'] == 20
  sizes = scope['experiment'].train.count + scope['experiment'].test.count
  assert sizes.tolist() == np.bincount(scope['clients']).tolist()
  assert 'round 1/1' in capsys.readouterr().out


def test_your_own_code(tmp_path, monkeypatch, capsys, drawing):
  scope, figures = execute('your_own_code', tmp_path, monkeypatch)
  assert len(figures) == 1
  name = scope['experiment'].settings.model.name
  assert name.startswith('own/gait.py:Gait#')
  for view in ('initial', 'finetuned'):
    assert 0 <= scope['result']['views'][view]['recall'] <= 1
  assert scope['experiment'].train.x.shape == (675, 64, 2)
  assert sorted(scope['task'].init(scope['key'])) == ['embed', 'head']
  share = scope['scores'].own['share_good']
  assert share.shape == (6,) and ((share >= 0) & (share <= 1)).all()
  out = capsys.readouterr().out
  assert f'{name}\n' in out and out.count('% right') == 6
