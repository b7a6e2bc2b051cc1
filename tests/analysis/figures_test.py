"""Figures of the analyses show their numbers."""

import csv

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedjax_pfl.analysis import class_curves, features, similarity
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report import figure_file, layout, plots, styles


def make_axis():
  return Figure().subplots()


def test_saw_tooth_marks_the_beginning_of_rounds():
  epochs = np.array([0, 1, 2, 2, 3, 4])
  values = np.array([10.0, 40, 50, 20, 60, 70])
  ax = class_curves.plot_saw_tooth(
    make_axis(), {'fedbabu': plots.Curve(epochs, values)}
  )
  curve, *rounds = ax.lines
  assert curve.get_xdata().tolist() == epochs.tolist()
  assert curve.get_ydata().tolist() == values.tolist()
  assert (curve.get_color(), curve.get_label()) == ('#D55E00', 'FedBABU')
  assert values[curve.get_markevery()].tolist() == [10, 20]
  assert [line.get_xdata()[0] for line in rounds] == [0, 2]


def test_layers_go_from_light_to_dark_and_the_head_is_black():
  cosines = {
    'conv2': np.array([1, 0.99, 0.98]),
    'conv10': np.array([1, 0.98, 0.97]),
    'head': np.array([1, 0.8, 0.7]),
  }
  ax = similarity.plot_layers(make_axis(), cosines)
  assert [line.get_label() for line in ax.lines] == list(cosines)
  for line, values in zip(ax.lines, cosines.values(), strict=True):
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == values.tolist()
  first, second, head = (to_hex(line.get_color()) for line in ax.lines)
  assert head == '#000000'
  assert sum(bytes.fromhex(first[1:])) > sum(bytes.fromhex(second[1:])) > 0
  assert len({line.get_marker() for line in ax.lines}) == 3
  low, high = ax.get_ylim()
  assert low < 0.7 and high > 1  # all is seen


def test_points_of_a_group_have_one_colour_marker_and_name():
  points = np.array([[0.0, 0], [1, 0], [2, 0], [9, 9], [9, 8]])
  group = np.array([4, 4, 4, 1, 1])
  ax = features.plot_points(make_axis(), points, group, list('abcdef'))
  clouds = {one.get_label(): one.get_offsets() for one in ax.collections}
  assert clouds['e'].tolist() == points[:3].tolist()
  assert clouds['b'].tolist() == points[3:].tolist() and len(clouds) == 2
  x = {text.get_text(): text.xy[0] for text in ax.texts}
  assert 0 < x.pop('e') < 3 and 7 < x.pop('b') < 9 and not x


def test_names_of_groups_that_mix_are_not_one_on_the_other():
  """All of group 1 lies on points of group 0, which is alone at the right."""
  points = np.array([[0.0, 0], [0, 0], [0, 0], [6, 14], [6, 14], [0, 0]])
  places = features.name_places(points, np.array([1, 1, 0, 0, 0, 0]))
  np.testing.assert_allclose(places[0], [5.5, 13.5])
  np.testing.assert_allclose(places[1], [0.5, 0.5])
  same = features.name_places(np.zeros((4, 2)), np.array([0, 1, 2, 3]))
  assert len({tuple(place) for place in same.values()}) == 4


def test_many_groups_are_told_apart_and_not_written_on_one_another():
  group = np.repeat(np.arange(20), 3)
  points = np.stack([group, group], 1).astype(float)
  labels = [f'group {number}' for number in range(20)]
  ax = features.plot_points(make_axis(), points, group, labels)
  assert [one.get_label() for one in ax.collections] == labels and not ax.texts
  found = styles.distinct_styles(labels).values()
  assert len({(style.colour, style.marker) for style in found}) == 20


def test_axes_with_other_names_have_legends_of_their_own():
  """Such as the maps of runs on two data sets."""

  def legends(*names):
    figure, axes = layout.make_figure(2, 4, 3)
    for ax, name in zip(axes, names, strict=True):
      ax.plot([0, 1], label=name)
    layout.add_legends(figure, axes)
    own = [one.get_legend() for one in axes if one.get_legend()]
    return [
      [text.get_text() for text in one.get_texts()]
      for one in [*figure.legends, *own]
    ]

  assert legends('cat', 'cat') == [['cat']]
  assert legends('cat', 'seven') == [['cat'], ['seven']]


def test_curves_may_have_styles_of_their_own():
  found = styles.distinct_styles(['a', 'b'])
  curves = {name: plots.Curve(np.arange(2), np.ones(2)) for name in found}
  ax = plots.plot_curves(make_axis(), curves, found.get)
  one, other = ax.lines
  assert (one.get_label(), other.get_label()) == ('a', 'b')
  assert one.get_color() != other.get_color()
  assert one.get_linestyle() != other.get_linestyle()


@pytest.mark.parametrize('ending', ['.png', '.pdf', '.svg'])
def test_a_figure_and_its_numbers_are_saved(tmp_path, ending):
  figure = Figure()
  figure.subplots()
  out = figure_file.save(
    figure,
    tmp_path / 'new' / f'a{ending}',
    ['name', 'value'],
    [
      ['x', figure_file.format_number(1 / 3)],
      ['y', figure_file.format_number(np.nan)],
    ],
  )
  assert out.stat().st_size > 500
  with open(out.with_suffix('.csv'), newline='') as stream:
    rows = [*csv.reader(stream)]
  assert rows == [['name', 'value'], ['x', '0.3333'], ['y', '']]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(BadInput, match=r"output: got '.*file/a.png', expected a"):
    figure_file.save(Figure(), tmp_path / 'file' / 'a.png', [], [])


def test_another_format_is_refused(tmp_path):
  with pytest.raises(BadInput, match=r'Choices: \.png, \.pdf, \.svg'):
    figure_file.save(Figure(), tmp_path / 'a', [], [])
  assert not [*tmp_path.iterdir()]
