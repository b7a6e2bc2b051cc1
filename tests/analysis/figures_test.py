"""Figures of the analyses show their numbers."""

import re

import numpy as np
from matplotlib.colors import to_hex

from fedjax_pfl.analysis import class_curves, elbow, id_ood, similarity
from fedjax_pfl.analysis.id_ood import Split


def words(figure):
  return [text.get_text() for text in figure.axes[0].texts]


def test_a_line_stands_where_a_round_begins():
  epochs = np.array([0, 1, 2, 2, 3, 4])
  values = np.array([10.0, 40, 50, 20, 60, 70])
  figure = class_curves.draw({'fedbabu': (epochs, Split(values, values / 2))})
  shown = words(figure)
  assert 'Classes of the client' in shown and 'All other classes' in shown
  assert 'FedBABU 70.0' in shown and 'FedBABU 35.0' in shown
  upright = [
    one.get_path().vertices
    for one in figure.axes[0].patches
    if len(one.get_path().vertices) == 2
    and np.ptp(one.get_path().vertices[:, 0]) == 0
  ]
  assert len(upright) == 2  # one in each chart, at epoch 2


def test_layers_go_from_light_to_dark_and_the_head_is_black():
  cosines = {
    'conv2': np.array([1, 0.99, 0.98]),
    'conv10': np.array([1, 0.98, 0.97]),
    'head': np.array([1, 0.8, 0.7]),
  }
  (panel,), colours = similarity.plot_layers('run', cosines, 'r0')
  assert [key.label for key in panel.keys] == list(cosines)
  assert [key.value for key in panel.keys] == ['0.9800', '0.9700', '0.7000']
  first, second, head = colours.values()
  assert head == to_hex('black')
  assert sum(bytes.fromhex(first[1:])) > sum(bytes.fromhex(second[1:])) > 0
  marks = re.findall(
    r'<path d="[^"]*" class="mark"', ''.join(key.sample for key in panel.keys)
  )
  assert len({*marks}) == 3


def test_clients_on_their_classes_and_on_others():
  split = Split(np.array([50.0, 60]), np.array([np.nan, np.nan]))
  runs = {
    'fedavg': {'initial': split, 'finetuned': split},
    'local_only': {'personal': split},
  }
  shown = words(id_ood.draw(runs))
  assert shown.count('FedAvg') == shown.count('Local only') == 2
  assert shown.count('before') == 2 and shown.count('after') == 4
  assert shown.count('no client') == 3  # no test image of other classes
  note = 'Before and after: initial and finetuned; personal. Dot: a client.'
  assert any(one.startswith(note) for one in shown)


def test_the_sharpest_bend_is_marked():
  shown = words(elbow.draw(np.array([9.0, 3, 2.5]), 2))
  assert 'sharpest bend: 2 clusters 3.0' in shown and 'clusters' in shown
