"""Fingerprints of data, for many configs on few image sets."""

from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.data import PARTITIONS
from fedjax_pfl.training.experiment_data import divide, identify, load_images

Settings = Mapping[str, Any]

IMAGES = ('dataset', 'data_dir', 'quick', 'max_train_examples', 'preprocessing')
TESTS = ('test_partition', 'test_shards_per_client', 'test_fraction')


def make_data_of(log: Callable[[str], None]) -> Callable[[Settings], str]:
  """Return settings -> fingerprint of its data, as a run would have it.

  An image set is read once, and each division of it drawn once.
  """
  sources, found = {}, {}

  def data_of(settings: Settings) -> str:
    images = tuple(settings[name] for name in IMAGES)
    fields = PARTITIONS[settings['partition']]._fields
    names = ('partition', 'num_clients', 'seed', *fields, *TESTS)
    division = (images, *((name, str(settings[name])) for name in names))
    if division not in found:
      if images not in sources:
        sources[images] = load_images(settings, log)
      dataset = sources[images]
      found[division] = identify(dataset, divide(settings, dataset))
    return found[division]

  return data_of
