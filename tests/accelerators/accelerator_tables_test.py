"""The tables of docs/dev/accelerators.md: rows, what is stored, the page."""

import jax
import pytest
from user_commands import run

from experiments.accelerators import tables, targets
from experiments.accelerators.tables import Row
from fedjax_pfl.algorithms import available
from fedjax_pfl.models.registry import MODELS

STORED = {name: tables.read(name) for name in ('cuda', 'tpu')}


def test_models_of_tables_and_every_method_have_their_rows():
  found = tables.all_rows()
  one = [row for row in found if row.devices == 1]
  models = {row.label for row in one if row.table == 'models'}
  assert models == {*tables.CONFIGS} and models < {*MODELS}
  assert {'convnet4', 'mobilenet', 'resnet50'} <= models
  mesh = [row for row in found if row.devices == 4]
  assert {row.label for row in mesh} == {*available(), *tables.MESH_MODELS}
  assert found == one + mesh


@pytest.mark.long
def test_a_stored_program_is_not_compiled_again(monkeypatch, tmp_path):
  """Compiled for the CPU in the place of a TPU, which takes seconds."""
  monkeypatch.setattr(tables, 'versions', lambda platform: 'compiler 1')
  devices = property(lambda where: jax.devices()[:1])
  monkeypatch.setattr(targets.Where, 'devices', devices)
  where, row = targets.Where('tpu', 'v5e:2x2'), Row('methods', 'fedbabu', 2)
  records, compiled = tables.compile_row(where, row, {})
  assert compiled == 1  # of a mesh its round alone
  (one,) = records
  assert one['program'] == 'round' and one['memory']['arguments'] > 0
  tables.write('tpu', row, records, tmp_path)
  stored = tables.read('tpu', tmp_path)
  assert stored == {row.name: records}
  known = {one['key']: one for one in stored[row.name]}
  assert tables.compile_row(where, row, known) == (records, 0)
  monkeypatch.setattr(tables, 'versions', lambda platform: 'compiler 2')
  assert tables.compile_row(where, row, known)[1] == 1


def test_cells_of_a_stored_row():
  """With a dagger if read from a text; of a failure it says why."""
  row = 'methods/fedavg-1'
  before = STORED['tpu'][row]
  assert '0.0849 †' in tables.as_markdown({'tpu': {row: before}})
  failed = {'error': 'too large', 'memory': None, 'compiles': False}
  shown = tables.as_markdown({'tpu': {row: [{**before[0], **failed}]}})
  assert '| does not compile |' in shown
  assert '\n- fedavg, round: too large\n' in shown


def test_the_page_has_what_is_stored():
  assert all(STORED.values())
  assert tables.as_markdown(STORED) == tables.PAGE.read_text()


@pytest.mark.long
def test_the_command_prints_the_page():
  shown = run('accelerator_tables')
  assert shown.stdout == tables.PAGE.read_text() + '\n', shown.stderr
