"""The clients of one partition of a form, with each of its seeds."""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.compare.form import Form
from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.data import dealing, partition_files
from fedjax_pfl.data.images import Dataset
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.settings import Settings, to_config

MOST = 6  # times the gradients of FedAvg; pFedMe has five times as many


class FormData(NamedTuple):
  form: Form
  partition: str
  settings: tuple[Settings, ...]  # of FedAvg, one a seed
  dataset: Dataset
  divisions: tuple[dealing.Division, ...]  # one a seed

  @property
  def fingerprints(self) -> list[str]:
    """Return those of the images and the rows, one a seed."""
    return [dealing.identify(self.dataset, rows) for rows in self.divisions]

  @property
  def tests(self) -> np.ndarray:
    """Return the tests of every client, [S, K]; 0 if it trains on nothing."""
    seeds = [zip(x['train'], x['test'], strict=True) for x in self.divisions]
    tests = [[len(y) if len(x) else 0 for x, y in seed] for seed in seeds]
    return np.array(tests)

  @property
  def gradients(self) -> float:
    """Return how many a training may have, steps of all clients."""
    settings, every = self.settings[0], self.divisions[0]['train']
    size, share = settings.train.batch_size, settings.training.client_fraction
    batches = np.mean([-(-len(rows) // size) for rows in every])
    cohort = cohort_size(settings.data.num_clients, share)
    passes = settings.num_rounds * settings.train.epochs * cohort
    return MOST * float(passes * batches)


def load(form: Form, partition: str) -> FormData:
  """Return the partition, divided again."""
  form = form.only(partition)
  unit = next(form.units())
  candidate = unit.candidates[0]
  settings = tuple(unit.settings(candidate, seed) for seed in form.seeds)
  dataset = dealing.load_images(settings[0].data, False, progress.log)
  divide = dealing.divide
  rows = tuple(divide(each.data, each.seed, dataset) for each in settings)
  return FormData(form, partition, settings, dataset, rows)


def export(data: FormData, blank: dict, out: AnyPath) -> None:
  """Write a new folder from which any framework can train.

  images.npz     train_x [P, H, W, ch] uint8, train_y [P], test_x, test_y
  seed_0.json .. the rows of each client: train, validation, test
  form.json      budget, seeds, and the config of FedAvg
  entry.json     the fields of an entry, of which the form's are filled in
  """
  with atomic_files.made_whole(out) as folder:
    folder.mkdir()
    tests = data.settings[0].data.test_partition
    for seed, rows in zip(data.form.seeds, data.divisions, strict=True):
      path = folder / f'seed_{seed}.json'
      partition_files.write('indices', path, data.dataset, rows, tests)
    arrays = {
      f'{split}_{name}': array
      for split in ('train', 'test')
      for name, array in getattr(data.dataset, split)._asdict().items()
    }
    atomic_files.write_npz(folder / 'images.npz', arrays, compressed=True)
    form = {'trainings': data.form.trainings, 'gradients': data.gradients}
    form |= {'seeds': data.form.seeds, 'tuning_seeds': data.form.tuning_seeds}
    form |= {'config': to_config(data.settings[0])}
    atomic_files.write_json(folder / 'form.json', form)
    atomic_files.write_json(folder / 'entry.json', blank)
