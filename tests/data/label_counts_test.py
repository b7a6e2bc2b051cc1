"""Counts of labels leave out padding."""

import numpy as np
from helpers import COUNTS, make_data

from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares


def test_counts_leave_the_padding_out():
  data = make_data()
  counts = label_counts_of_clients(data, num_classes=3)
  assert counts.sum(1).tolist() == list(COUNTS)
  own = np.asarray(data.y)[np.asarray(data.index[0, : COUNTS[0]])]
  assert counts[0].tolist() == np.bincount(own, minlength=3).tolist()


def test_shares_sum_to_one_where_there_is_anything():
  shares = label_shares(np.array([[3, 1], [0, 0]]))
  assert shares.tolist() == [[0.75, 0.25], [0, 0]]
  assert shares.dtype == np.float64
