"""Domains: the made set of digits, and a few clients of each domain."""

import numpy as np
from helpers import refused

from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.digits_domains import DOMAINS
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build_data import build_data

CONFIG = {
  'dataset': 'digits_domains',
  'partition': 'natural',
  'num_clients': 0,
  'model': 'convnet3',
}


def test_domains_are_the_digits_with_shifted_features():
  dataset, digits = load_dataset('digits_domains'), load_dataset('digits')
  assert dataset.fingerprint == 'a99a2cb096ca'  # on every machine
  sizes = [np.bincount(one).tolist() for one in dataset.clients]
  assert sizes == [[292, 290, 288, 287, 285], [355] * 5]
  x = dataset.test.x.reshape(5, 355, 8, 8, 3).astype(float)
  domain = dict(zip(DOMAINS, x, strict=True))
  plain = domain['plain']
  np.testing.assert_array_equal(plain[..., :1], digits.test.x)
  np.testing.assert_array_equal(domain['inverted'], 255 - plain)
  np.testing.assert_array_equal(domain['rotated'], np.rot90(plain, 1, (1, 2)))
  middle = plain[:, 2:5, 3:6].mean((1, 2))
  assert abs(domain['blurred'][:, 3, 4] - middle).max() <= 0.5
  # Where the ink is, a coloured digit is lighter than its ground.
  is_ink, is_ground = (plain == value for value in (255, 0))
  assert domain['coloured'][is_ink].min() >= 128
  assert domain['coloured'][is_ground].max() < 128
  assert (np.ptp(domain['coloured'], axis=-1) > 0).any()
  # No digit is trained on twice: together they are the training set.
  labels = [np.bincount(one.y) for one in (dataset.train, digits.train)]
  assert labels[0].tolist() == labels[1].tolist()


def test_a_few_clients_share_a_domain():
  data = build_data(parse_config(CONFIG | {'clients_per_domain': 3}), print)
  whole = build_data(parse_config(CONFIG), print)
  for few, one in ((data.train, whole.train), (data.test, whole.test)):
    index, count = np.asarray(few.index), np.asarray(few.count)
    assert len(count) == 15
    for domain, size in enumerate(np.asarray(one.count)):
      own = slice(3 * domain, 3 * domain + 3)
      assert np.ptp(count[own]) <= 1
      rows = [r[:n] for r, n in zip(index[own], count[own], strict=True)]
      want = np.asarray(one.index)[domain, :size]
      assert sorted(np.concatenate(rows)) == want.tolist()
  other = build_data(
    parse_config(CONFIG | {'clients_per_domain': 3, 'seed': 1}), print
  )
  assert other.data_id != data.data_id


def test_another_number_of_clients_is_refused():
  config = CONFIG | {'num_clients': 7, 'clients_per_domain': 2}
  message = refused(build_data, parse_config(config), print)
  assert message.startswith('num_clients: got 7, expected 10, the clients')
