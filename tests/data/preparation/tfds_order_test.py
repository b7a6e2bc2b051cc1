import numpy as np

from fedjax_pfl.data.preparation.tfds_order import tfds_order


def test_the_order_is_that_of_tfds_itself():
  from tensorflow_datasets.core import hashing

  for split in ('train', 'test'):
    hasher = hashing.Hasher(split)
    want = sorted(range(300), key=hasher.hash_key)
    np.testing.assert_array_equal(tfds_order(split, 300), want)
