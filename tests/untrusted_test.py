"""Files and names from elsewhere: read as data, and never executed.

A config is the user's own program, and is run, and so is the code that it or a
command line names; nothing else that is read is.
"""

import ast
import functools
import io
import itertools
import json
import os
import pathlib
import shutil
import zipfile

import finished_runs
import numpy as np
import pytest
from helpers import read_rows, refused
from pages import ROOT

from experiments.entries import entries
from experiments.reproduction.results import Results
from experiments.reproduction.summary_rows import write_summary
from fedjax_pfl.analysis.export import export
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.data import datasets, plain_pickle
from fedjax_pfl.results.page import render as page
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.frame import load_results
from fedjax_pfl.runs import checkpoint, result_file, run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

SOURCES = sorted(
  file
  for folder in ('fedjax_pfl', 'experiments', 'configs')
  for file in (ROOT / folder).rglob('*.py')
)
# Modules that run what they read.
UNSAFE = {'pickle', 'cPickle', 'dill', 'joblib', 'shelve', 'marshal', 'yaml'}
UNSAFE |= {'cloudpickle', 'runpy', 'code', 'jsonpickle'}
UNSAFE_CALLS = {'eval', 'exec', 'compile', '__import__', 'torch.load'}
UNSAFE_ATTRIBUTES = {'read_pickle', 'to_pickle', 'enable_load_extension'}
UNSAFE_ATTRIBUTES |= {'popen', 'exec_module'}
CONFIG_READER = ROOT / 'experiments' / 'commandline.py'
CODE_LOADER = ROOT / 'fedjax_pfl' / 'core' / 'user_code.py'
LOADERS = (CONFIG_READER, CODE_LOADER)
# Its unpickler calls a class of its own, in the place of a few names of NumPy.
PICKLE_READER = ROOT / 'fedjax_pfl' / 'data' / 'plain_pickle.py'
# It runs files of a fixed list, which come with the package.
SUBCOMMANDS = ROOT / 'fedjax_pfl' / '__main__.py'
OWN_IMPORTS = {SUBCOMMANDS: {'runpy'}, PICKLE_READER: {'pickle'}}
ENTRY = ROOT / 'results' / 'entries' / 'fedavg'
HOSTILE = '../../<script>x</script>|`;\'"--=1'


@functools.cache
def trees():
  return {file: ast.parse(file.read_text()) for file in SOURCES}


def calls():
  for file, tree in trees().items():
    for node in ast.walk(tree):
      if isinstance(node, ast.Call):
        yield file, node


def own_calls(file):
  """Return how a file may run the code of the user."""
  return {'exec', 'compile', 'exec_module'} if file in LOADERS else set()


def test_nothing_that_is_read_is_run():
  for file, tree in trees().items():
    # settings.system is a section, which is read and never called.
    assert 'os.system' not in ast.unparse(tree), file
    for node in ast.walk(tree):
      match node:
        case ast.Import(names=names):
          found = {alias.name.split('.')[0] for alias in names}
          own = OWN_IMPORTS.get(file, set())
          assert not found & UNSAFE - own, file
        case ast.ImportFrom(module=module):
          assert module.split('.')[0] not in UNSAFE, file
        case ast.Attribute(attr=attr):
          assert attr not in UNSAFE_ATTRIBUTES - own_calls(file), file
  for file, call in calls():
    name = ast.unparse(call.func)
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    assert name not in UNSAFE_CALLS - own_calls(file), file
    assert given.get('shell') != 'True', file
    if name in ('np.load', 'numpy.load', 'jnp.load'):
      assert given.get('allow_pickle') == 'False', file


def test_code_of_the_user_is_loaded_for_a_command_line_alone():
  """And for a program that calls `load_code` or `pfl.algorithm` itself."""
  callers = {
    file
    for file, call in calls()
    if ast.unparse(call.func).rpartition('.')[2] == 'load_code'
  }
  methods = ROOT / 'fedjax_pfl' / 'algorithms' / '__init__.py'
  assert callers == {CONFIG_READER, methods}


class Payload:
  """An object whose unpickling makes a file."""

  def __init__(self, path):
    self.path = str(path)

  def __reduce__(self):
    return pathlib.Path.touch, (pathlib.Path(self.path),)


def test_arrays_of_objects_are_refused_and_not_unpickled(tmp_path):
  bait = np.array([Payload(tmp_path / 'run')], object)
  np.savez(tmp_path / 'clients.npz', ids=bait)
  np.savez(tmp_path / 'model.npz', meta=bait)
  np.load(tmp_path / 'clients.npz', allow_pickle=True)['ids']
  assert (tmp_path / 'run').exists()  # so it would be run
  (tmp_path / 'run').unlink()
  assert 'without Python objects' in refused(run_dir.load_clients, tmp_path)
  refused(load_model, tmp_path / 'model.npz')
  assert not (tmp_path / 'run').exists()


def test_the_pickle_of_a_data_set_is_read_and_not_run(tmp_path):
  """PFLlib's files are pickles; NumPy itself would run what they name."""
  for split in ('train', 'test'):
    (tmp_path / split).mkdir()
    y = np.zeros(1, int)
    good = {'x': np.zeros((1, 1, 2, 2), np.float32), 'y': y}
    np.savez(tmp_path / split / '0.npz', data=good)
  payload, file = Payload(tmp_path / 'run'), tmp_path / 'train' / '0.npz'
  for x in (payload, np.array([payload], object), {'deep': [payload]}):
    np.savez(file, data={'x': x, 'y': y})
    message = refused(datasets.peek, 'pfllib', str(tmp_path))
    assert 'it names pathlib.Path' in message, message
    assert not (tmp_path / 'run').exists()
    np.load(file, allow_pickle=True)['data'].item()
    (tmp_path / 'run').unlink()  # so it would be run
  for name in ('builtins\neval', 'numpy\nload', 'os\nsystem'):
    with pytest.raises(ValueError, match='which is no array'):
      plain_pickle.load(io.BytesIO(f"c{name}\n(S'1'\ntR.".encode()))
  reader = plain_pickle.Reader(io.BytesIO())
  for module, name in itertools.product(
    plain_pickle.MODULES, plain_pickle.NAMES
  ):
    assert reader.find_class(module, name) is plain_pickle.Record


def test_an_image_file_runs_no_program(tmp_path, monkeypatch):
  """Pillow recognises PostScript by its content, and hands it to `gs`."""
  from PIL import Image

  folder, run = tmp_path / 'train' / 'cat', tmp_path / 'run'
  folder.mkdir(parents=True)
  program = tmp_path / 'gs'
  program.write_text(f'#!/bin/sh\ntouch {run}\nexit 1\n')
  program.chmod(0o700)
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  Image.new('L', (8, 8)).save(folder / '1.png', 'EPS')
  shutil.copytree(folder, tmp_path / 'train' / 'dog')
  assert 'does not decode' in refused(datasets.peek, 'folder', str(tmp_path))
  assert not run.exists()


@pytest.mark.parametrize(
  'header',
  [
    5,
    {'meta': {}},
    {'meta': {}, 'dtypes': {'a': 'object'}},
    {'meta': {}, 'dtypes': {'a': 'int8', 'a/b': 'int8'}},
    {'meta': {}, 'dtypes': {'absent': 'int8'}},
  ],
)
def test_a_model_file_with_another_header(tmp_path, header):
  leaf = np.zeros(3, np.int8)
  arrays = {'a': leaf, 'a/b': leaf, 'meta': np.array(json.dumps(header))}
  atomic_files.write_npz(tmp_path / 'model.npz', arrays)
  refused(load_model, tmp_path / 'model.npz')


def test_links_in_a_directory_from_elsewhere_are_not_written_through(tmp_path):
  victim, folder = tmp_path / 'victim', tmp_path / 'run'
  victim.write_text('mine')

  def write():
    run_dir.open_run(folder, {}, data='', log=print).log(round=1)

  folder.mkdir()
  (folder / '.lock').symlink_to(victim)
  assert f'.lock, a link to {victim}' in refused(write).replace("'", '')
  (folder / '.lock').unlink()
  write()
  (folder / 'metrics.jsonl').unlink()
  (folder / 'metrics.jsonl').symlink_to(victim)
  assert 'metrics.jsonl' in refused(write)
  half = folder / f'.config.json.{os.getpid()}.tmp'  # guessed
  half.symlink_to(victim)
  atomic_files.write_json(folder / 'config.json', {})
  assert victim.read_text() == 'mine'


def test_a_pipe_in_place_of_metrics_does_not_block(tmp_path):
  run = run_dir.open_run(tmp_path / 'run', {}, data='', log=print)
  os.mkfifo(run.path / 'metrics.jsonl')
  assert 'cannot be written' in refused(lambda: run.log(round=1))


def test_links_to_folders_are_removed_alone(tmp_path):
  run = run_dir.open_run(tmp_path / 'run', {}, data='', log=print)
  (theirs := tmp_path / 'theirs').mkdir()
  run.save_checkpoint(1, {'a': np.zeros(1)})
  for name in ('.a.tmp', 'checkpoints/.2.tmp', 'checkpoints/0'):
    (run.path / name).symlink_to(theirs)
  run.save_checkpoint(2, {'a': np.ones(1)})
  assert run.resume({'a': np.zeros(1)})[0] == 2 and theirs.is_dir()
  assert not [path for path in run.path.rglob('*') if path.is_symlink()]
  shutil.rmtree(folder := run.path / 'checkpoints')
  folder.symlink_to(tmp_path / 'nowhere')
  message = refused(run.save_checkpoint, 3, {'a': np.ones(1)})
  assert 'file exists' in message and 'make room' not in message


def report(run):
  page.render([run])


def export_server(run):
  export(run, 'server', '', run.parent / 'model.npz', print, None)


FILES = [
  ('config.json', lambda run: run_dir.open_run(run, {}, data='', log=print)),
  ('result.json', lambda run: run_dir.Run(run, print, None).result()),
  ('metrics.jsonl', lambda run: run_dir.Run(run, print, None).resume({})),
  ('clients.npz', result_file.check_clients),
  ('entry.json', entries.read),
  ('clients.npz', entries.read),
  ('demo.json', lambda run: stored_counts.read([run / 'demo_counts.csv'])),
  ('own.py', lambda run: load_code({'loss': f'{run}/own.py:loss'})),
]
OF_RUNS = [(f'{name}.json', export_server) for name in ('config', 'result')]
OF_RUNS += [(file, report) for file, _ in FILES[:3]]
WORDS = {os.mkdir: 'run directory that holds ', os.mkfifo: ''}
LOCKED = 'which this account may not read'


@pytest.mark.parametrize('make', WORDS)
@pytest.mark.parametrize(('file', 'use'), FILES + OF_RUNS)
def test_a_pipe_or_a_folder_in_place_of_a_file(tmp_path, file, use, make):
  run = finished_runs.make_run(tmp_path / 'run')
  if use is entries.read:
    shutil.copytree(ENTRY, run, dirs_exist_ok=True)
  (run / file).unlink(missing_ok=True)
  make(run / file)
  message = refused(use, run)
  assert (file, use) in FILES or WORDS[make] in message


@pytest.mark.parametrize(('file', 'use'), OF_RUNS)
def test_files_that_may_not_be_read(tmp_path, monkeypatch, file, use):
  run, read = finished_runs.make_run(tmp_path / 'run'), atomic_files.open_file

  def open_file(path):
    if path.name == file:
      raise PermissionError(13, 'Permission denied', str(path))
    return read(path)

  monkeypatch.setattr(atomic_files, 'open_file', open_file)
  assert f'{file}, {LOCKED}' in refused(use, run)


@pytest.mark.parametrize(
  'read',
  [atomic_files.read_npz, lambda file: datasets.peek('npz', str(file))],
)
def test_a_bomb_and_twins_in_an_archive(tmp_path, monkeypatch, read):
  images, file = np.zeros((3000, 10, 10), np.uint8), tmp_path / 'a.npz'
  arrays = {'images': images, 'labels': np.arange(3000) % 2}
  atomic_files.write_npz(file, arrays, compressed=True)
  read(file)
  monkeypatch.setattr(atomic_files, 'MOST_BYTES', 10**5)
  monkeypatch.setattr(atomic_files, 'MOST_TIMES', 10)
  assert '324,' in (message := refused(read, file))
  assert ' bytes when unpacked, more than 100,000' in message
  atomic_files.write_npz(file, arrays)
  read(file)
  with zipfile.ZipFile(file, 'a') as archive, pytest.warns(UserWarning):
    archive.writestr('labels.npy', archive.read('labels.npy'))
  assert 'an array is there twice' in refused(read, file)


def change(run, file, **fields):
  """Change a JSON file of a run, with the checksums that belong to it."""
  content = json.loads((run / file).read_text()) | fields
  if file == 'result.json':
    content.pop('sha256')
    content = result_file.with_checksums(content, run)
  (run / file).write_text(json.dumps(content))


def test_checkpoints_that_may_not_be_read(tmp_path, monkeypatch):
  (tmp_path / 'checkpoints').mkdir()

  def iterdir(path):
    raise PermissionError(13, 'Permission denied', str(path))

  monkeypatch.setattr(pathlib.Path, 'iterdir', iterdir)
  message = refused(checkpoint.restore, tmp_path / 'checkpoints', {}, print)
  assert f'checkpoints, {LOCKED}' in message


@pytest.mark.parametrize(
  ('file', 'fields'),
  [
    ('result.json', {'views': {}}),
    ('result.json', {'views': {'initial': [1]}}),
    ('result.json', {'views': {'initial': {'mean': 'x'}}}),
    ('result.json', {'views': {'initial': {'mean': 1.0, 'interval': [1]}}}),
    ('result.json', {'seconds': None}),
    ('result.json', {'unseen': [1]}),
    ('result.json', {'global': {'accuracy': 'x'}}),
    ('result.json', {'select': 'last'}),
    ('config.json', {'config': [1]}),
    ('config.json', {'config': {'hp': [1]}}),
    ('config.json', {'commit': 1}),
    *(
      (f'{name}.json', n) for name in ('config', 'result') for n in (60, 10000)
    ),
  ],
)
def test_files_of_a_run_in_another_form(tmp_path, file, fields):
  """Or of JSON that is nested so deeply."""
  run = finished_runs.make_run(tmp_path / 'theirs')
  if depth := fields if isinstance(fields, int) else 0:
    (run / file).write_text('{"config":' * depth + '0' + '}' * depth)
  else:
    change(run, file, **fields)
  message = refused(page.render, [run])
  assert ('nested more than 50 deep' if depth else file) in message


def test_runs_that_began_with_themselves(tmp_path):
  """A page shows the path; a key has no end."""
  runs = [
    finished_runs.make_run(tmp_path / name, model=name.encode(), seed=seed)
    for seed, name in enumerate('ab')
  ]
  digests = [run_dir.model_digest(run) for run in runs]
  for run, other, digest in zip(runs, runs[::-1], digests[::-1], strict=True):
    config = json.loads((run / 'config.json').read_text())['config']
    config['init_from'] = str(other)
    change(run, 'config.json', config=config, data=f'a-b+{digest}')
  assert str(runs[0]) in page.render(runs)
  assert 'a model that came of it' in refused(keys.run_key, runs[0])


@pytest.mark.parametrize('name', ['../x', '/tmp/x', ''])
def test_a_model_stays_below_its_run(tmp_path, name):
  run = run_dir.open_run(tmp_path / 'run', {}, data='', log=print)
  refused(run.model_path, name)


def test_hostile_names_from_another_machine_stay_text(tmp_path):
  """Through results, merging, tables of them, and the page."""
  run = finished_runs.make_run(
    tmp_path / 'theirs' / 'runs' / 'run',
    data=HOSTILE,
    data_dir=HOSTILE,
    algorithm='superfed',
    hp={'protocol': HOSTILE},
    views=('initial', HOSTILE.replace('/', '')),
    result={'note': HOSTILE},
  )
  before = sorted(tmp_path.rglob('*'))
  shutil.copytree(tmp_path / 'theirs', tmp_path / 'ours')
  results = Results(tmp_path / 'ours')
  frame = load_results(tmp_path / 'ours')
  assert {*frame.data} == {HOSTILE} and {*frame.hp} == {f'protocol={HOSTILE}'}
  assert len(frame) == 2 * finished_runs.K
  text = page.render([run])
  assert '<script>x' not in text and '&lt;script&gt;x' in text
  configs = {'digits:fedbabu': parse_config(finished_runs.make_settings())}
  write_summary(results, configs)
  rows = read_rows(tmp_path / 'ours' / 'summary.csv')
  assert len(rows) == 2 and all(HOSTILE in row['setting'] for row in rows)
  made = {*tmp_path.rglob('*')} - {*before, tmp_path / 'ours'}
  assert {path.parent.name for path in made} == {'ours', 'runs', 'run'}
  assert not list(tmp_path.parent.glob('*script*'))
