"""The tables of docs/accelerators.md: which rows, what is stored, the page."""

import subprocess
import sys

import jax
import pytest
from helpers import refused

from configs import common
from experiments.accelerators import page, rows, store, targets
from experiments.accelerators.rows import Row
from fedjax_pfl.algorithms import available

STORED = {name: store.read(name) for name in targets.DISTRIBUTIONS}


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
  assert part in refused(lambda: [*rows.choose(tables, labels, 4)])


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


@pytest.mark.long
def test_a_stored_program_is_not_compiled_again(monkeypatch, tmp_path):
  """Compiled for the CPU in the place of a TPU, which takes two seconds."""
  small = common.load('digits:fedbabu', quick=True).to_dict()
  small['clients_per_chunk'] = 1
  monkeypatch.setattr(store, 'config_of', lambda row, platform: small)
  monkeypatch.setattr(store, 'versions', lambda platform: 'compiler 1')
  devices = property(lambda where: jax.devices()[:1])
  monkeypatch.setattr(targets.Where, 'devices', devices)
  where, row = targets.Where('tpu', 'v5e:2x2'), Row('models', 'fedbabu', 1)
  records, compiled = store.compile_row(where, row, {})
  assert compiled == 1
  (one,) = records
  assert one['program'] == 'round' and one['memory']['arguments'] > 0
  store.write('tpu', row, records, tmp_path)
  stored = store.read('tpu', tmp_path)
  assert stored == {row.name: records}
  known = {one['key']: one for one in stored[row.name]}
  monkeypatch.setattr(store, 'compile_program', None)
  assert store.compile_row(where, row, known) == (records, 0)
  monkeypatch.setattr(store, 'versions', lambda platform: 'compiler 2')
  with pytest.raises(TypeError):
    store.compile_row(where, row, known)


def test_numbers_of_the_text_of_a_program_have_a_dagger():
  row = 'methods/fedavg-1'
  before = STORED['tpu'][row]
  assert '0.0849 †' in page.as_markdown({'tpu': {row: before}})
  after = [{**one, 'costs': {'flops': 5e9, 'bytes': 7e6}} for one in before]
  shown = page.as_markdown({'tpu': {row: after}})
  assert '| 5 | 7 |' in shown and ' † |' not in shown


def test_rows_of_another_device_are_refused(tmp_path):
  v5e, v5p = (targets.DEVICES['tpu'][name].name for name in ('v5e', 'v5p'))
  store.check_device('tpu', v5e)
  message = refused(store.check_device, 'tpu', v5p)
  assert f"got '{v5p}'" in message and v5e in message
  store.check_device('tpu', v5p, tmp_path)


COMMAND = """
import pathlib, sys
from absl import flags
from experiments import accelerator_tables as tables
from experiments.accelerators import page
flags.FLAGS(['tables', '--platform=tpu', '--write', '--labels=convnet4'])
page.PAGE = pathlib.Path(sys.argv[1])
tables.compile_rows = lambda rows: print(*(row.name for row in rows))
tables.main({})
"""


def test_rows_are_compiled_and_then_written(tmp_path):
  """In a process of its own, as commands have flags of the same names."""
  page_file = tmp_path / 'page.md'
  done = subprocess.run(
    [sys.executable, '-c', COMMAND, str(page_file)],
    cwd=store.ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == ['models/convnet4-1', 'models/convnet4-4']
  assert page_file.read_text() == page.PAGE.read_text()
  assert all(STORED.values())
  assert page.PAGE.read_text() == page.as_markdown(
    {name: STORED[name] for name in ('cuda', 'tpu')}
  )
