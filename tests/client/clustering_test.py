"""Clusters of label distributions; golden cases compare whole partitions."""

import numpy as np
import pytest

from fedjax_pfl.client import clustering
from fedjax_pfl.core.errors import BadInput

# Three kinds of clients, four of each, hardly different inside.
KINDS = np.eye(3)[np.arange(12) % 3] * 0.9 + 0.01 * np.arange(12)[:, None]


@pytest.mark.parametrize('cap_factor', [None, 1.2])
def test_clients_without_examples_have_no_cluster_of_their_own(cap_factor):
  shares = np.insert(KINDS, [0, 5], 0, axis=0)
  labels = clustering.cluster(shares, 3, 0, cap_factor)
  want = clustering.cluster(KINDS, 3, 0, cap_factor)
  assert labels.tolist() == [0, *want[:5], 0, *want[5:]]
  with pytest.raises(BadInput, match='1 to 12: 12 clients'):
    clustering.check_clusters(shares, 13)


def test_more_clusters_than_kinds_of_clients():
  shares = np.repeat(np.eye(3), 2, axis=0)
  clustering.check_clusters(shares, 3)
  with pytest.raises(BadInput, match='6 clients have 3 different') as error:
    clustering.check_clusters(shares, 4)
  assert 'hp.clusters: got 4, expected 1 to 3' in str(error.value)
