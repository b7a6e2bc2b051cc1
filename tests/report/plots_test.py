"""Plots show the numbers they are given, on the axis they are given."""

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedjax_pfl.report import plots


def make_axis():
  return Figure().subplots()


def test_curves_of_one_and_of_several_seeds():
  rounds = np.arange(5)
  seeds = np.stack([rounds * 10.0, rounds * 12.0, rounds * 14.0])
  ax = plots.plot_curves(
    make_axis(),
    {
      'fedavg': plots.Curve(rounds, rounds * 8.0),
      'fedbabu': plots.Curve(rounds, seeds),
    },
  )
  one, three = ax.lines
  assert one.get_ydata().tolist() == [0, 8, 16, 24, 32]
  assert three.get_ydata().tolist() == [0, 12, 24, 36, 48]
  assert three.get_label() == 'FedBABU (3 seeds)'
  assert (one.get_color(), three.get_color()) == ('#0072B2', '#D55E00')
  assert one.get_linestyle() != three.get_linestyle()
  (band,) = ax.collections
  assert band.get_datalim(ax.transData).y1 == 56
  assert '[%]' in ax.get_ylabel()


def test_clients_are_all_there_and_paired():
  before, after = np.array([10.0, 20, 30]), np.array([40.0, 50, np.nan])
  ax = plots.plot_clients(
    make_axis(),
    {
      'fedavg': plots.Change(before, after, ('initial', 'finetuned')),
      'fedrep': plots.Change(None, after, ('personal', 'personal')),
    },
  )
  pairs = [line.get_ydata().tolist() for line in ax.lines]
  assert pairs[:2] == [[10, 40], [20, 50]] and len(pairs) == 3
  clouds = [c for c in ax.collections if len(c.get_offsets()) > 1]
  heights = [cloud.get_offsets()[:, 1].tolist() for cloud in clouds]
  assert heights == [[10, 20, 30], [40, 50], [40, 50]]
  labels = [label.get_text() for label in ax.get_xticklabels()]
  assert set(labels) == {
    'initial',
    'finetuned',
    '\nFedAvg',
    'personal\nFedRep',
  }


def test_summary_has_the_first_view_hollow_and_the_last_filled():
  view = {'mean': 60.0, 'std': 8.0, 'worst_decile': 41.0}
  better = {'mean': 80.0, 'std': 5.0, 'worst_decile': 71.0}
  between = {'mean': 70.0, 'std': 5.0, 'worst_decile': 51.0}
  views = {'initial': view, 'mix': between, 'finetuned': better}
  ax = plots.plot_summary(
    make_axis(), [('fedbabu', views), ('fedrep', {'personal': view})]
  )
  means = [bar.lines[0] for bar in ax.containers]
  assert [mean.get_xdata()[0] for mean in means] == [60, 80, 60]
  faces = [to_hex(mean.get_markerfacecolor()) for mean in means]
  assert faces == ['#ffffff', '#d55e00', '#117733']
  labels = [label.get_text() for label in ax.get_yticklabels()]
  assert labels == ['FedBABU', 'FedRep']
