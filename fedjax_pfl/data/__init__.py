"""Image sets, their division among clients, and what is done to a batch."""

from fedjax_pfl.data.clients import (
  describe,
  from_arrays,
  padding_waste,
  stack_clients,
)
from fedjax_pfl.data.images import Images, Shape, Source
from fedjax_pfl.data.partition import (
  PARTITIONS,
  deal_blocks,
  fingerprint,
  iid,
  partition,
  shard_assignment,
  shards,
)
from fedjax_pfl.data.sources import NAMES, is_available, load_source, peek
from fedjax_pfl.data.synthetic import Synthetic, make_synthetic
from fedjax_pfl.data.transforms import crop_flip, make_transforms

__all__ = [
  'NAMES',
  'PARTITIONS',
  'Images',
  'Shape',
  'Source',
  'Synthetic',
  'crop_flip',
  'deal_blocks',
  'describe',
  'fingerprint',
  'from_arrays',
  'iid',
  'is_available',
  'load_source',
  'make_synthetic',
  'make_transforms',
  'padding_waste',
  'partition',
  'peek',
  'shard_assignment',
  'shards',
  'stack_clients',
]
