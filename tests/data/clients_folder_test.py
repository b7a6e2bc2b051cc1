"""Clients on disk: what is written is what runs read; the sentences."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
from helpers import assert_same_bits, refused
from small_runs import assert_same_run, make_experiment

import fedjax_pfl as pfl
from configs import million
from fedjax_pfl.data import clients_folder, datasets
from fedjax_pfl.data.clients_folder import by_client, write_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.data.preparation.prepare import prepare_clients
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.training import build
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.outline import outline
from fedjax_pfl.training.state import random_streams

RNG = np.random.default_rng(0)
SIZES = 3, 1, 5


def client(size, dtype=np.uint8):
  x = RNG.integers(0, 256, (size, 8, 8, 1)).astype(dtype)
  return x, RNG.integers(0, 3, size)


CLIENTS = [(*client(size), *client(size - 1)) for size in SIZES]


@pytest.fixture
def folder(tmp_path):
  write_clients(tmp_path / 'own', iter(CLIENTS), client_names=['a', 'b', 'c'])
  return tmp_path / 'own'


def load(folder):
  return datasets.load_dataset('clients', data_dir=str(folder))


def test_what_is_written_is_read(folder):
  """And the device of a CPU has no copy of it."""
  dataset, place = load(folder), str(folder)
  for own, want in zip(by_client(dataset), CLIENTS, strict=True):
    for got, array in zip(own, want, strict=True):
      np.testing.assert_array_equal(got, array)
  assert datasets.peek('clients', place) == Shape((8, 8, 1), 3, num_clients=3)
  rows = [np.arange(3), np.arange(3, 9)]
  pool = pfl.stack_clients(dataset.train, rows).x
  assert pool.unsafe_buffer_pointer() == dataset.train.x.ctypes.data
  grey = [(x[..., 0], y) for x, y, *_ in CLIENTS]
  grey = [(x, y, x[:0], y[:0]) for x, y in grey]
  write_clients(folder.parent / 'grey', grey, num_classes=7)
  other = load(folder.parent / 'grey')
  np.testing.assert_array_equal(other.train.x, dataset.train.x)
  assert (other.num_classes, len(other.test.y)) == (7, 0)
  assert other.fingerprint != dataset.fingerprint


def test_a_prepared_folder_has_the_examples_of_the_file(tmp_path):
  """In their order, for each client of a run."""
  order = RNG.permutation(sum(SIZES))
  x, y = (np.concatenate([own[k] for own in CLIENTS])[order] for k in (0, 1))
  owners = np.repeat(np.array(['b', 'c', 'a']), SIZES)[order]
  places = {'npz': str(tmp_path / 'own.npz'), 'clients': str(tmp_path / 'to')}
  np.savez(places['npz'], images=x, labels=y, clients=owners)
  lines = []
  prepare_clients(['npz'], places['npz'], places['clients'], lines.append)
  assert places['clients'] in lines[-1]
  held = []
  for name, place in places.items():
    config = {'dataset': name, 'data_dir': place, 'partition': 'natural'}
    experiment = make_experiment(
      **config, num_clients=0, test_partition='split', save_clients=()
    )
    assert experiment.data.names == ['a', 'b', 'c']
    x, y, index, count, _ = experiment.train
    rows = [row[:n] for row, n in zip(index, count, strict=True)]
    held.append([(x[own], y[own]) for own in rows])
  assert_same_bits(*held)


@pytest.mark.usefixtures('quick_compiler')
def test_a_run_reads_ahead_what_its_cohorts_need(folder, monkeypatch):
  """And wherever states and examples are it has the same bits."""
  asked, runs, mapped = [], folder.parent, clients_folder._mapped

  def note(file, first, stop):
    spans = {*zip(first.tolist(), stop.tolist(), strict=True)}
    asked.append((os.path.basename(file.filename), spans))

  def run(place, memory=False):
    asked.clear()
    path = runs / f'{place}{memory}'
    experiment = make_experiment(
      **{'dataset': 'clients', 'data_dir': str(folder), 'num_clients': 0},
      **{'partition': 'natural', 'algorithm': 'ditto', 'save_clients': (0,)},
      **{'client_fraction': 0.7, 'rounds': 2, 'views': ('personal',)},
      **{'eval_views': (), 'log_every': 1, 'clients_placement': place},
    )
    train(experiment, path)
    assert_same_run(path, runs / 'deviceFalse')
    return experiment

  monkeypatch.setattr(build, 'read_ahead', note)
  for place in ('device', 'host', 'disk'):
    experiment, key = run(place), random_streams(0)['cohorts']
    cohorts = experiment.sampler.draw(key, 0, 2).tolist()
    spans = (0, 3), (3, 4), (4, 9)
    own = [('x.npy', {spans[k] for k in cohort}) for cohort in cohorts]
    assert len(cohorts[0]) == 2 and asked[:2] == own
    # A block of all; client 1 has no tests.
    assert asked[2:] == [('x.npy', {*spans}), ('test_x.npy', {(0, 2), (2, 6)})]
  copied = lambda *args: np.array(mapped(*args))
  monkeypatch.setattr(clients_folder, '_mapped', copied)
  run('device', memory=True)
  assert not asked
  # A file written while the run goes on; then other clients.
  monkeypatch.setattr(clients_folder, '_mapped', mapped)
  touch = lambda file, *rows: os.utime(file.filename)
  monkeypatch.setattr(build, 'read_ahead', touch)
  message = refused(run, 'host', 'changed')
  assert 'x.npy written after the run began' in message
  shutil.rmtree(folder)
  write_clients(folder, CLIENTS[::-1], client_names=['a', 'b', 'c'])
  (runs / 'diskFalse' / 'result.json').unlink()
  assert refused(run, 'disk').startswith('data: got ')


# ---- sentences


def about(folder, **changes):
  file = folder / 'clients.json'
  file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def write_over(folder, name, change):
  array = np.load(folder / f'{name}.npy')
  change(array)
  np.save(folder / f'{name}.npy', array)


def swap(offsets):
  offsets[1:3] = offsets[2:0:-1]


DAMAGES = {
  'without': (lambda f: (f / 'clients.json').unlink(), 'x.npy, but no clients'),
  'half': (lambda f: (f / 'y.npy').unlink(), 'no whole y.npy'),
  'cut': (lambda f: os.truncate(f / 'test_x.npy', 150), 'no whole test_x.npy'),
  'version': (lambda f: about(f, version=2), 'of version 2'),
  'names': (lambda f: about(f, files={'x': 1}), 'other names of arrays'),
  'json': (lambda f: (f / 'clients.json').write_text('{'), 'that is no JSON'),
  'shape': (lambda f: np.save(f / 'y.npy', np.arange(4)), 'y.npy of int64[4]'),
  'changed': (lambda f: write_over(f, 'x', lambda x: x.fill(1)), 'other rows'),
}


@pytest.mark.parametrize('case', DAMAGES)
def test_damages(folder, case):
  damage, words = DAMAGES[case]
  damage(folder)
  message = refused(load, folder)
  assert message.startswith('data_dir: got ') and words in message


def test_offsets_that_do_not_rise(folder, monkeypatch):
  write_over(folder, 'offsets', swap)
  monkeypatch.setattr(clients_folder, '_digest_of_rows', lambda *_: 'same')
  about(folder, compared='same')
  assert 'offsets.npy that do not rise to 9' in refused(load, folder)


def test_a_folder_without_rights(folder, monkeypatch):
  def denied(path, **how):
    raise PermissionError(errno.EACCES, 'Permission denied', str(path))

  monkeypatch.setattr(np, 'load', denied)
  message = refused(load, folder)
  assert message.startswith(f"data_dir: got '{folder}/x.npy")
  assert 'which this account may not read' in message


def full_disk(handle):
  raise OSError(errno.ENOSPC, 'No space left on device')


def stopped():
  yield CLIENTS[0]
  raise KeyboardInterrupt


def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
  place = tmp_path / 'own'
  floats = client(3, np.float64)
  nothing = np.full_like(floats[0], np.nan), floats[1]
  for given, words in (
    ([], "clients: got 'none'"),
    ([CLIENTS[0], client(2, np.float32)], "for client 1', expected"),
    ([floats[:1]], '(x, y) or (x, y, test_x, test_y)'),
    ([nothing], 'NaN or infinite'),
    ([(floats[0], floats[1] / 2)], 'whole numbers as labels'),
  ):
    assert words in refused(write_clients, place, given)
  with pytest.raises(KeyboardInterrupt):
    write_clients(place, stopped())
  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', full_disk)
    message = refused(write_clients, place, CLIENTS)
  assert 'no space left on device' in message
  digits = refused(prepare_clients, ['digits'], '', str(place), print)
  assert digits.startswith('to: got ') and 'nobody holds' in digits
  assert not [*tmp_path.iterdir()]
  write_clients(place, CLIENTS)
  assert 'a path where nothing is' in refused(write_clients, place, CLIENTS)


@pytest.mark.parametrize('method', million.EXPERIMENTS)
def test_the_config_of_a_million_makes_its_clients(
  method, tmp_path, monkeypatch
):
  """Here of sixty, of which each has two classes, once."""
  monkeypatch.setattr(million, 'NUM_CLIENTS', 60)
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  config = million.get_config(method)
  (folder,) = tmp_path.iterdir()
  written = (folder / 'clients.json').stat().st_mtime_ns
  million.get_config(method)
  assert (folder / 'clients.json').stat().st_mtime_ns == written
  dataset = load(folder)
  sizes = [np.bincount(owners).tolist() for owners in dataset.clients]
  assert sizes == [[10] * 60, [2] * 60]
  for _, y, _, test_y in by_client(dataset):
    assert len({*y.tolist(), *test_y.tolist()}) <= 2
  run = outline(config.to_dict())
  assert run.settings.data.num_clients == 60
  assert cohort_size(60, run.settings.training.client_fraction) == 50
