import numpy as np

from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.images import Shape, Synthetic
from fedjax_pfl.data.synthetic import make_synthetic


def test_equal_specs_give_equal_bits_and_seeds_differ():
  one, two = (make_synthetic(Synthetic()) for _ in range(2))
  assert one.fingerprint == two.fingerprint
  np.testing.assert_array_equal(one.train.x, two.train.x)
  other = make_synthetic(Synthetic(seed=1))
  assert other.fingerprint != one.fingerprint


def test_shapes_and_balance():
  spec = Synthetic((9, 12, 3), 7, 70, 21)
  dataset = load_dataset('synthetic', synthetic=spec)
  assert peek('synthetic', synthetic=spec) == Shape((9, 12, 3), 7)
  assert dataset.train.x.shape == (70, 9, 12, 3)
  assert (dataset.train.x.dtype, dataset.train.y.dtype) == (np.uint8, np.int32)
  assert np.bincount(dataset.train.y).tolist() == [10] * 7
  assert np.bincount(dataset.test.y).tolist() == [3] * 7

