"""States of clients on disk: the bits of those in memory, whatever happens."""

import shutil

import jax
import numpy as np
import pytest
from faults import campaigns, tiny
from helpers import assert_same_bits, refused
from small_runs import assert_same_run, make_experiment, with_algorithm

from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.build import placed_as_started
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program

PLACES = 'device', 'host', 'disk'


def placed(place, algorithm='ditto', **changes):
  """Return the experiment with states there; one device has their bits."""
  few = {'rounds': 4, 'num_clients': 5, 'max_train_examples': 100}
  few |= {'batch_size': 16, 'log_every': 1, 'checkpoint_every': 1}
  few |= {'eval_every': 2, 'eval_views': (), 'save_clients': ()}
  few |= {'devices': 1, 'views': ('initial',), **changes}
  return make_experiment(algorithm=algorithm, clients_placement=place, **few)


def differing(experiment):
  """Return the experiment in which clients begin with states of their own."""
  init = experiment.stages[-1].algorithm.init_client

  def init_client(server, data, rng):
    noise = lambda leaf: leaf + jax.random.normal(rng, leaf.shape)
    return jax.tree.map(noise, init(server, data, rng))

  return with_algorithm(experiment, init_client=init_client)


@pytest.mark.usefixtures('quick_compiler')
@pytest.mark.parametrize(
  ('algorithm', 'views', 'change'),
  [
    ('ditto', ('initial', 'personal'), differing),
    ('scaffold', ('initial',), lambda experiment: experiment),
  ],
)
def test_all_places_have_the_same_bits(algorithm, views, change, tmp_path):
  states = []
  for place in PLACES:
    experiment = change(placed(place, algorithm, views=views))
    train(experiment, tmp_path / place)
    server, clients = load_states(experiment, tmp_path / place, pytest.fail)
    states.append((server, jax.tree.map(np.asarray, clients)))
    assert_same_run(tmp_path / place, tmp_path / 'device')
  assert_same_bits(*states[:2])
  assert_same_bits(*states[1:])
  touched = np.load(tmp_path / 'disk' / 'states' / 'touched.npy')
  assert 0 < touched.sum() <= len(touched)


@pytest.fixture
def on_disk(monkeypatch):
  """Return the run of the campaigns of faults, with states on disk."""
  experiment = placed('disk', views=('initial', 'personal'))
  program = Program(experiment)
  monkeypatch.setattr(tiny, 'experiment', lambda: experiment)
  monkeypatch.setattr(tiny, 'program', lambda: program)
  return experiment


def leaves_of(folder):
  """Return the files of states, but for the journal."""
  return {p.name: p.read_bytes() for p in (folder / 'states').glob('*.npy')}


@pytest.mark.usefixtures('quick_compiler')
def test_a_run_that_is_killed_or_has_no_room_ends_in_the_same_bits(
  on_disk, tmp_path
):
  for name, count in (('kills', 40), ('disks', 20)):
    folder = tmp_path / name
    folder.mkdir()
    assert [*getattr(campaigns, name)(folder, 1, count)] == [''] * count
    want = leaves_of(folder / 'whole')
    assert len(want) > 1
    for path in folder.iterdir():
      assert leaves_of(path) == want, path


@pytest.mark.usefixtures('quick_compiler')
def test_a_damaged_checkpoint_is_undone(on_disk, tmp_path, capsys):
  tiny.play(tmp_path / 'whole')
  path = shutil.copytree(tmp_path / 'whole', tmp_path / 'damaged')
  (path / run_dir.RESULT).unlink()
  (path / 'checkpoints' / '4' / 'state.npz').write_bytes(b'')
  train(on_disk, path, tiny.program())
  assert 'continuing from 3' in capsys.readouterr().out
  assert leaves_of(path) == leaves_of(tmp_path / 'whole')
  assert_same_run(path, tmp_path / 'whole')
  # Other places have no states of this run, and files may be gone.
  (path / run_dir.RESULT).unlink()
  other = placed('host', views=('initial', 'personal'))
  message = refused(train, other, path)
  assert 'expected disk' in message
  journal = path / 'states' / '4.npz'
  content = bytearray(journal.read_bytes())
  content[len(content) // 3] ^= 1
  journal.write_bytes(content)
  assert 'with a damaged 4.npz' in refused(train, on_disk, path)
  journal.unlink()
  message = refused(train, on_disk, path)
  assert 'without the journal of round 4' in message


def with_rooms(monkeypatch, device, host):
  for name, room in (('device', device), ('host', host)):
    monkeypatch.setattr(memory_estimate, f'room_on_{name}', lambda n=room: n)


def place_of(experiment):
  placement = experiment.placement
  for rows in experiment.data.splits.values():
    assert isinstance(rows.index, np.ndarray) == placement.on_host
  return PLACES[placement.on_host + placement.on_disk]


def test_auto_is_the_first_place_with_room(monkeypatch):
  """In bytes, of 20,000 in all and 7,700 of states."""
  much, lines = 2**40, []
  for rooms, place in (
    ((much, much), 'device'),
    ((18_000, much), 'host'),
    ((18_000, 20_000), 'disk'),
    ((1, 1), 'disk'),
  ):
    with_rooms(monkeypatch, *rooms)
    experiment = placed('auto')
    assert place_of(experiment) == place
    memory_estimate.first_with_room(experiment, lines.append)
    assert f'auto chooses {place}: device takes 0.00 of' in lines[-1]
    assert lines[-1].count(' takes ') == 1 + PLACES.index(place)
  assert place_of(placed('auto', 'fedconcat')) == 'host'
  assert place_of(placed('auto', validation_fraction=0.3)) == 'host'
  assert 'devices' in refused(lambda: placed('auto', devices=64))


@pytest.mark.usefixtures('quick_compiler')
def test_a_run_of_auto_stays_where_it_began(monkeypatch, tmp_path):
  rooms = {'device': 2**40, 'disk': 20_000}
  for began, other in (('disk', 'device'), ('device', 'disk')):
    with_rooms(monkeypatch, rooms[began], rooms[began])
    experiment = placed('auto')
    assert place_of(experiment) == began
    train(experiment, tmp_path / began)
    (tmp_path / began / run_dir.RESULT).unlink()
    with_rooms(monkeypatch, rooms[other], rooms[other])
    experiment = placed('auto')
    assert place_of(experiment) == other
    assert (
      place_of(placed_as_started(experiment, tmp_path / began, print)) == began
    )
    monkeypatch.setattr(memory_estimate, 'check_room', lambda experiment: None)
    train(experiment, tmp_path / began)
    assert_same_run(tmp_path / began, tmp_path / 'disk')
    assert len(load_states(experiment, tmp_path / began, print)) == 2


def test_what_needs_all_states_at_once_is_refused():
  message = refused(placed, 'disk', 'fedconcat')
  assert 'clients_placement' in message and 'all clients at once' in message
