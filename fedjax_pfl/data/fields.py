"""The section `data`: images, and their division among clients."""

from collections.abc import Mapping
from typing import Any

from fedjax_pfl.core import rules
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.example_losses import CROSS_ENTROPY, LOSSES, labels_of
from fedjax_pfl.core.records import BOTH, NOTHING, field, or_code, path, record
from fedjax_pfl.core.rules import count, is_int, one_of
from fedjax_pfl.data.datasets import NAMES, peek
from fedjax_pfl.data.images import Table
from fedjax_pfl.data.partition import FIELDS, PARTITIONS, TEST_PARTITIONS
from fedjax_pfl.data.standardise import STANDARDISE
from fedjax_pfl.data.transforms import PREPROCESSINGS, find_recipe

OF_COLUMNS = 'label', 'client', 'split', 'group', 'loss'
OF_TABLE = {'needs': ('dataset', 'table'), 'only': True}
PERCENT = 'a percentage, or a number of examples'


def _as_names(later: int | str | tuple) -> int | tuple[str, ...]:
  """Return a number as it is, and 'a,b' as names."""
  if isinstance(later, int):
    return later
  is_text = isinstance(later, str)
  names = later.rstrip(',').split(',') if is_text else map(str, later)
  return tuple(name.strip() for name in names)


def _are_later(value: Any) -> bool:
  if is_int(value):
    return value >= 0
  if not isinstance(value, str | tuple | list):
    return False
  names = _as_names(value)
  return bool(names) and all(names) and len({*names}) == len(names)


LATER = rules.Rule(
  _are_later,
  'a whole number of clients, 0 or more, or names of clients, each once',
)


COLUMN = rules.Rule(
  lambda value: isinstance(value, str), "the name of a column; '' is none"
)


@record(more=FIELDS)
class DataSettings:
  """Images, and their division among clients.

  Each partition adds its own settings.

  Args:
    dataset: the image set
    data_dir: where prepared images are; "": $TFDS_DATA_DIR,
      ~/tensorflow_datasets; npz, table: the file; folder: a folder, or
      a .csv; clients, pfllib: the folder of the set
    loss: what training minimises, a mean over examples; it says what labels
      are: classes (cross_entropy), numbers (squared, huber), bits (logistic),
      (time, event) (cox); or a function of your own, of classes
    label: table: the column of labels; a,b: several
    client: table: the column of who holds a row
    split: table: the column with train and test
    group: table: a column such as the patient, which is no feature; the log
      names who has rows for training and for testing
    standardise: columns of a table, by training rows: of all clients, or of
      each its own; gaps become the median in any case
    image_size: images are scaled to so many pixels a side, whatever their shape
      was; 0: they stay as they are
    max_train_examples: use the first so many training images, and tests in
      proportion; 0: all; sets with clients: of every client in proportion; sets
      and clients that lie class by class: of every class
    imbalance_factor: training classes fall in size from the first to the last,
      this many times smaller; 1: they stay; under any partition
    preprocessing: default: crop, flip, mean and std; unit: pixels / 255
      (SuPerFed); signed: to [-1, 1] (PFLlib); imagenet: mean and std alone;
      fedconcat: that paper's
    partition: how training examples are divided among clients; natural: as the
      data are; or a function of your own
    num_clients: registered clients, K; 0: those of the data, with
      partition=natural
    unseen_clients: so many of the K, drawn by the seed, or those of these names
      (natural) are never in a cohort: they come after training, and are
      evaluated beside the others
    test_partition: same, independent, whole, iid; split: of the training images
      of a client; merged: both sets are dealt as one, and then split
    test_shards_per_client: independent: shards of the test set for each client
    test_fraction: split, merged: share of the images of a client
    validation_fraction: share of each client's training examples that is kept
      for choosing, and not trained on; 0: none
  """

  dataset: str = field(
    'cifar10', one_of(NAMES, 'an image set; your own under "folder" or "npz"')
  )
  data_dir: str = field(
    '',
    path('a path as a string; "" is the default place'),
    NOTHING,
    resumable=True,  # a run has the fingerprint of what is there
  )
  loss: str = field(CROSS_ENTROPY, or_code(one_of(LOSSES)))
  label: str = field('', COLUMN, **OF_TABLE)
  client: str = field('', COLUMN, **OF_TABLE)
  split: str = field('', COLUMN, **OF_TABLE)
  group: str = field('', COLUMN, **OF_TABLE)
  standardise: str = field('all', one_of(STANDARDISE))
  image_size: int = field(0, count('pixels', smallest=0))
  max_train_examples: int = field(0, count('training images', smallest=0))
  imbalance_factor: float = field(1.0, rules.at_least(1))
  preprocessing: str = field('default', one_of(PREPROCESSINGS))
  partition: str = field('shards', or_code(one_of(PARTITIONS)))
  num_clients: int = field(100, count('clients'))
  unseen_clients: int | tuple[str, ...] = field(0, LATER, stored=_as_names)
  test_partition: str = field('same', one_of(TEST_PARTITIONS), BOTH)
  test_shards_per_client: int = field(
    100,
    count('shards for each client'),
    BOTH,
    needs=('test_partition', 'independent'),
    only=True,
  )
  test_fraction: float = field(0.2, rules.interval('(0, 1)', PERCENT), BOTH)
  validation_fraction: float = field(0.0, rules.interval('[0, 1)', PERCENT))

  @property
  def table(self) -> Table:
    """Return the columns of a table that are no features."""
    return table_of(**{name: getattr(self, name) for name in OF_COLUMNS})

  @property
  def num_seen_clients(self) -> int:
    """Return the clients that rounds draw from."""
    later = self.unseen_clients
    number = len(later) if isinstance(later, tuple) else later
    return self.num_clients - number

  @property
  def side(self) -> int:
    """Return the pixels a side to which images are scaled; 0: to none."""
    return self.image_size or find_recipe(self.dataset, self.preprocessing).side


def table_of(
  label: str, client: str, split: str, loss: str, group: str = ''
) -> Table:
  """Return the columns of a table; what labels are, the loss says."""
  labels = tuple(filter(None, map(str.strip, label.split(','))))
  return Table(labels, client, split, labels_of(loss), group)


def with_clients(flat: Mapping[str, Any]) -> dict[str, Any]:
  """Return the config with the clients of the data for num_clients=0.

  Data without tests are tested on a part of each client's: test_partition
  `same` becomes `split`. Other partitions need a number.
  """
  number = flat['num_clients']
  if not is_int(number) or number:
    return {**flat}
  if flat['partition'] != 'natural':
    raise bad_input(
      'num_clients',
      got=f'0 with partition={flat["partition"]}',
      expected='a whole number of clients, 1 or more',
      choices=['partition=natural, for the clients that the data have'],
    )
  for name in ('dataset', 'data_dir', 'clients_per_domain', *OF_COLUMNS):
    DataSettings.ruled[name].checked(flat[name])
  table = table_of(**{name: flat[name] for name in OF_COLUMNS})
  name, place = flat['dataset'], flat['data_dir']
  shape = peek(name, place, table=table)
  if not shape.num_clients:
    raise bad_input(
      'num_clients',
      got=f'0 for {name} of {place or "no client"}',
      expected='a number, or data that say who holds an example',
      choices=[
        'dataset=folder with CLIENT/CLASS/',
        'a .csv with clients',
        'client=COLUMN of a table',
      ],
      cause='a folder of classes, without clients',
    )
  found = {'num_clients': shape.num_clients * flat['clients_per_domain']}
  if not shape.has_tests and flat['test_partition'] == 'same':
    found['test_partition'] = 'split'
  return {**flat, **found}
