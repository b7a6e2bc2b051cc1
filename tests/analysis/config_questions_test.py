"""Questions to a config, which train nothing: bytes, and label counts."""

import csv

import numpy as np
import pytest

from configs import digits
from fedjax_pfl.analysis import elbow, partition
from fedjax_pfl.analysis.communication_budget import (
  as_text,
  communication_budget,
)
from fedjax_pfl.settings import parse_config

COUNTS = np.array([[8, 0, 2], [0, 0, 0], [0, 4, 0]])


def settings_of(method):
  return parse_config(digits.get_config(method).to_dict())


def test_fedavg_sends_as_much_as_fedavg_and_fedbabu_less():
  (stage,), rounds = communication_budget(settings_of('fedavg'))
  # Besides the model, a client receives the round: a few bytes.
  assert rounds == pytest.approx(stage.rounds, rel=1e-4)
  assert 0 <= stage.sizes.down - stage.sizes.up < 10
  assert f'{rounds:,.1f} rounds of FedAvg' in as_text([stage], rounds)
  (stage,), rounds = communication_budget(settings_of('fedbabu'))
  assert stage.sizes.up < stage.sizes.down
  assert 0 < rounds < stage.rounds


def test_every_example_is_counted_once():
  part = partition.partition_counts(settings_of('fedbabu'), 'a', print)
  assert part.training.shape == part.testing.shape == (20, 10)
  assert (part.training.sum(), part.testing.sum()) == (1442, 355)
  assert ((part.training > 0).sum(1) <= 2).all()  # two shards each


def test_a_row_for_each_partition(tmp_path):
  many = np.ones((3400, 3), int)
  parts = [partition.Part('a', COUNTS, COUNTS[::-1] * 2)]
  parts.append(partition.Part('b', many, many))
  out = partition.save(parts, tmp_path / 'x.png')
  assert out.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  with open(out.with_suffix('.csv'), newline='') as stream:
    _, *rows = csv.reader(stream)
  assert [' '.join(row) for row in rows[:6]] == [
    *('a training 0 0 8', 'a training 0 2 2', 'a training 2 1 4'),
    *('a testing 0 1 8', 'a testing 2 0 16', 'a testing 2 2 4'),
  ]
  assert len(rows) == 6 + 2 * many.size


def test_the_sharpest_bend_is_marked():
  figure = elbow.draw(np.array([9.0, 3, 2.5]), 2)
  shown = [text.get_text() for text in figure.axes[0].texts]
  assert 'sharpest bend: 2 clusters 3.0' in shown and 'clusters' in shown
