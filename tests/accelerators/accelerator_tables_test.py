"""The tables of docs/accelerators.md: which rows, what is stored, the page."""

import subprocess
import sys

import jax
import pytest
from helpers import refused

from configs import common
from experiments.accelerators import (
  hlo_costs,
  page,
  places,
  report,
  rows,
  store,
  table_row,
  targets,
)
from experiments.accelerators.rows import Row
from fedjax_pfl.algorithms import available

HERE = report.Where('tpu', 'v5e:2x2', 1)


def test_every_model_and_method_has_its_rows():
  found = [*rows.choose(rows.TABLES, [], 4)]
  one = [row for row in found if row.devices == 1]
  methods = [row.label for row in one if row.table == 'methods']
  assert methods == [*available()]
  assert {row.label for row in one if row.table == 'models'} == {*rows.CONFIGS}
  mesh = {row.label for row in found if row.devices == 4}
  assert mesh == {*available(), *rows.MESH_MODELS}
  assert found == one + [row for row in found if row.devices == 4]


@pytest.mark.parametrize(
  ('tables', 'labels', 'part'),
  [
    (['models'], ['vgg'], 'did you mean vgg9?'),
    (['method'], [], 'models, methods'),
  ],
)
def test_rows_that_are_not_there(tables, labels, part):
  with pytest.raises(ValueError, match='got') as error:
    [*rows.choose(tables, labels, 4)]
  assert part in str(error.value)


def test_clients_side_by_side_are_those_of_auto():
  row = Row('methods', 'fedbabu', 1)
  chunks = {
    platform: rows.config_of(row, platform)['clients_per_chunk']
    for platform in targets.DISTRIBUTIONS
  }
  assert chunks == {'tpu': 1, 'cuda': 10}
  for label in rows.CONFIGS:
    config = rows.config_of(Row('models', label, 1), 'tpu')
    assert config['model'] == label
    common.load(rows.CONFIGS[label][0])


@pytest.fixture
def compiler_of_this_machine(monkeypatch):
  """Compile for the CPU in the place of a TPU, which takes two seconds."""
  small = common.load('digits:fedbabu', quick=True).to_dict()
  small['clients_per_chunk'] = 1
  monkeypatch.setattr(table_row, 'config_of', lambda row, platform: small)
  monkeypatch.setattr(store, 'versions', lambda platform: 'compiler 1')
  monkeypatch.setattr(targets, 'devices_of', lambda *where: jax.devices()[:1])
  return monkeypatch


def test_a_stored_program_is_not_compiled_again(
  compiler_of_this_machine, tmp_path
):
  row = Row('models', 'fedbabu', 1)
  records, compiled = table_row.compile_row(HERE, row, {})
  assert compiled == 1
  (one,) = records
  assert one['program'] == 'round' and one['step']['kernels'] > 0
  store.write(tmp_path, 'tpu', row, records)
  stored = store.read(tmp_path, 'tpu')
  assert stored == {row.name: records}
  known = {one['key']: one for one in stored[row.name]}
  compiler_of_this_machine.setattr(table_row, 'compile_program', None)
  assert table_row.compile_row(HERE, row, known) == (records, 0)
  for change in (
    (store, 'versions', lambda platform: 'compiler 2'),
    (hlo_costs, 'VERSION', hlo_costs.VERSION + 1),
  ):
    with compiler_of_this_machine.context() as patch:
      patch.setattr(*change)
      with pytest.raises(TypeError):
        table_row.compile_row(HERE, row, known)


def test_the_page_names_rows_that_were_counted_otherwise():
  stored = store.read(places.FOLDER, 'tpu')
  row = 'methods/fedavg-1'
  sentence = f'The rows of {stored[row][0]["commit"]} are to be compiled again'
  assert sentence not in page.as_markdown({'tpu': {row: stored[row]}})
  before = [{**one, 'counting': hlo_costs.VERSION - 1} for one in stored[row]]
  assert sentence in page.as_markdown({'tpu': {row: before}})


def test_rows_of_another_device_are_refused():
  v5e, v5p = targets.find('tpu', 'v5e').name, targets.find('tpu', 'v5p').name
  store.check_device(places.FOLDER, 'tpu', v5e)
  message = refused(store.check_device, places.FOLDER, 'tpu', v5p)
  assert f"got '{v5p}'" in message and v5e in message


COMMAND = """
import pathlib, sys
from absl import flags
from experiments import accelerator_tables as tables
flags.FLAGS(['tables', '--platform=tpu', '--write', '--labels=convnet4'])
tables.PAGE = pathlib.Path(sys.argv[1])
tables.compile_rows = lambda rows: print(*(row.name for row in rows))
tables.main({})
"""


def test_rows_are_compiled_and_then_written(tmp_path):
  """In a process of its own, as commands have flags of the same names."""
  page_file = tmp_path / 'page.md'
  done = subprocess.run(
    [sys.executable, '-c', COMMAND, str(page_file)],
    cwd=places.PAGE.parents[1],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == ['models/convnet4-1', 'models/convnet4-4']
  assert page_file.read_text() == places.PAGE.read_text()


def test_no_rows_no_device(tmp_path):
  store.check_device(tmp_path, 'tpu', targets.find('tpu', 'v5p').name)


def test_the_page_is_that_of_the_stored_rows():
  stored = {name: store.read(places.FOLDER, name) for name in ('cuda', 'tpu')}
  assert all(stored.values())
  assert places.PAGE.read_text() == page.as_markdown(stored)
