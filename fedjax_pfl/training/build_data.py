"""The data of an experiment: its images, dealt to the clients, and checked."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input, refuse
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.datasets import is_available
from fedjax_pfl.data.dealing import (
  Log,
  divide,
  identify,
  idle_fields,
  load_images,
  names_of,
  stacked,
)
from fedjax_pfl.data.images import Dataset, Images, Shape
from fedjax_pfl.data.partition import OF_OWN
from fedjax_pfl.data.prepared import NUM_EXAMPLES
from fedjax_pfl.data.standardise import PRIVATE, standardised
from fedjax_pfl.data.used_examples import examples_of
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.settings import Settings

SIZES = {'digits': (1442, 355), **NUM_EXAMPLES}  # training, test
SMALL_BATCH = 1000  # may be padding for the most part: it costs little


class ExperimentData(NamedTuple):
  """The examples of an experiment, of one array of images for train and test.

  splits: 'train' and 'test' of the clients that take part in rounds;
  'validation' of their training examples, if some are kept for choosing;
  'unseen_train' and 'unseen_test' of clients who come later, if there are any.
  """

  dataset: Dataset
  splits: dict[str, ClientData]  # index [K, N], or of the U that come later
  data_id: str  # fingerprint of images and partition
  names: Sequence[str] = ()  # [K], of those that come later, too

  @property
  def train(self) -> ClientData:
    return self.splits['train']

  @property
  def test(self) -> ClientData:
    return self.splits['test']


def build_data(
  settings: Settings, log: Log, dataset: Dataset | None = None
) -> ExperimentData:
  """Return the images of a config, or a stand-in, dealt to its clients."""
  data, system = settings.data, settings.system
  dataset = dataset or load_images(data, system.quick, log)
  check_data(settings, dataset)
  if idle := idle_fields(data):
    log(f'partition={data.partition} does not use {idle}.')
  division = divide(data, settings.seed, dataset)
  own_tests = data.test_partition in OF_OWN
  dataset = standardised(dataset, data.standardise, division, own_tests)
  if settings.dp and dataset.columns and data.standardise == 'all':
    log(PRIVATE)
  splits = stacked(data, dataset, division, log)
  for name, clients in splits.items():
    if name.endswith('test'):
      check_scoring(settings, clients)
  if fraction := settings.server_training.fraction:
    from fedjax_pfl.around import server_training

    size = len(dataset.train.y)
    rows = server_training.shared_rows(settings.seed, fraction, size)
    log(f'server: {len(rows):,} of the {size:,} training examples')
  names = names_of(data, settings.seed, dataset)
  return ExperimentData(dataset, splits, identify(dataset, division), names)


def check_data(settings: Settings, dataset: Dataset) -> None:
  """Refuse a global model without tests, and batches that nobody can fill."""
  name, size = settings.model.name, len(dataset.train.y)
  is_merged = settings.data.test_partition == 'merged'
  tests = "the words 'test' in `split`, or a folder test/"
  largest = max(size, SMALL_BATCH)
  fitting = (
    f'at most {largest}: all clients have {size} training examples, and a '
    'batch with fewer examples is padded and computed'
  )
  batch, finetuned = settings.train.batch_size, settings.finetune.batch_size
  refuse(
    (
      settings.evaluation.eval_global_model and not len(dataset.test.y),
      *('eval_global_model', True),
      'False: the data set has no test examples of its own',
      'eval_global_model=False',
      'test_partition=split' if is_merged else tests,
    ),
    (batch > largest, 'batch_size', batch, fitting),
    (finetuned > largest, 'finetune.batch_size', finetuned, fitting),
  )
  if not is_code(name) and MODELS[name].tokens:
    known = max(MODELS[name].tokens, dataset.num_classes)
    inputs = [part.x for part in (dataset.train, dataset.test) if part.x.size]
    low, high = min(map(np.min, inputs)), max(map(np.max, inputs))
    if not 0 <= low <= high < known:
      raise bad_input(
        'data_dir',
        got=f'inputs from {low} to {high}',
        expected=f'symbols that {name} knows: whole numbers from 0 to '
        f'{known - 1}',
      )


def check_scoring(settings: Settings, test: ClientData) -> None:
  """Refuse clients whose tests fill no batch, where only such count."""
  settings, size = settings.evaluation, settings.train.batch_size
  counts = np.asarray(test.count)  # [K]
  if settings.adapt_on == 'test_half':
    counts = counts - counts // 2
  few = (counts > 0) & (counts < size)
  if settings.scoring == 'whole_batches' and few.any():
    raise bad_input(
      'scoring',
      got=f'whole_batches with a client of {counts[few].min()} tests',
      expected=f'at least one whole batch, of {size} tests, for each client',
      choices=["scoring='exact'", 'a smaller batch_size', 'fewer clients'],
    )


# ---- images that are not here ------------------------------------------------


def images_of(settings: Settings, shape: Shape, log: Log) -> Dataset:
  """Return the images of a config, or blank ones if they are not here.

  No time, no memory and no program depends on their content.
  """
  data, is_quick = settings.data, settings.system.quick
  if is_available(data.dataset, data.data_dir):
    return load_images(data, is_quick, log)
  return examples_of(data, stand_in(data.dataset, shape))


def stand_in(name: str, shape: Shape) -> Dataset:
  """Return a data set of this name with blank images and balanced labels.

  >>> stand_in('cifar10', Shape((32, 32, 3), 10)).train.x.nbytes
  153600000

  which take no memory: all are one byte.
  """
  one_of(
    SIZES,
    'a data set whose number of examples is known',
    'a folder of images, or a text, that is not there',
  ).check('dataset', name)
  rng, classes = np.random.default_rng(0), shape.num_classes
  note = f'{name} is not prepared: {SIZES[name]} balanced labels stand in.'
  train, test = (
    Images(
      np.broadcast_to(np.uint8(0), (size, *shape.image_shape)),
      rng.permutation(np.arange(size) % classes).astype(np.int32),
    )
    for size in SIZES[name]
  )
  return Dataset(name, train, test, classes, '', note)
