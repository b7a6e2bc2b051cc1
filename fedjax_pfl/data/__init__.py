"""From image files to the examples of clients, and to batches."""

from fedjax_pfl.data.client_data import (
  PLACEMENTS,
  describe,
  describe_empty_clients,
  from_arrays,
  stack_clients,
)
from fedjax_pfl.data.datasets import (
  NAMES,
  is_available,
  load_dataset,
  peek,
  peek_dtype,
  peek_labels,
)
from fedjax_pfl.data.images import (
  IMAGE,
  Dataset,
  Images,
  Shape,
  Synthetic,
  scale_images,
  scale_shape,
)
from fedjax_pfl.data.partition import (
  PARTITIONS,
  TEST_PARTITIONS,
  fingerprint,
  partition,
)
from fedjax_pfl.data.transforms import (
  PREPROCESSINGS,
  find_recipe,
  make_transforms,
)

__all__ = [
  'IMAGE',
  'NAMES',
  'PARTITIONS',
  'PLACEMENTS',
  'PREPROCESSINGS',
  'TEST_PARTITIONS',
  'Dataset',
  'Images',
  'Shape',
  'Synthetic',
  'describe',
  'describe_empty_clients',
  'find_recipe',
  'fingerprint',
  'from_arrays',
  'is_available',
  'load_dataset',
  'make_transforms',
  'partition',
  'peek',
  'peek_dtype',
  'peek_labels',
  'scale_images',
  'scale_shape',
  'stack_clients',
]
