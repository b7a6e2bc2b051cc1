"""Panels of the page -> a figure in a file, by the page's style sheet."""

import csv
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report import figure_file, styles
from fedjax_pfl.report.charts import (
  clients,
  lines,
  panels,
  partition,
  picture,
  svg,
)
from fedjax_pfl.report.charts.lines import Series


def shapes(figure):
  """Return (fill, outline, corners) of every shape of a figure."""
  return [
    (to_hex(one.get_facecolor()), to_hex(one.get_edgecolor()), one.get_path())
    for one in figure.axes[0].patches
  ]


def words(figure):
  return [text.get_text() for text in figure.axes[0].texts]


def draw(*parts):
  chart = svg.drawing(100, 50, '', svg.tag('g', *parts, class_='c0'))
  return picture.draw('', [panels.Panel('', chart)], {'c0': '#0072B2'})


def test_elements_are_where_and_as_the_page_has_them():
  box = svg.tag('rect', x=10, y=20, width=30, height=5, class_='bar')
  lost = svg.tag('rect', x=0, y=0, width=1, height=1, class_='bar lost')
  circle = svg.tag('path', d=svg.marker('o', 50.0, 25.0, 5.0), class_='mark')
  cloud = svg.dots([10.0, 20.0], [5.0, 6.0], 10.0)
  figure = draw(box, lost, circle, cloud)
  bar, hollow, (_, _, path) = shapes(figure)
  assert bar[0] == '#0072b2' and hollow[:2] == ('#ffffff', '#0072b2')
  corners = bar[2].vertices[:4] - bar[2].vertices[0]
  np.testing.assert_allclose(corners, [[0, 0], [30, 0], [30, 5], [0, 5]])
  top, bottom = figure.axes[0].get_ylim()
  assert top > bottom == 0  # downwards, as in SVG
  round_ = path.vertices[:-1]
  middle = (round_.max(0) + round_.min(0)) / 2
  radii = np.linalg.norm(round_ - middle, axis=1)
  np.testing.assert_allclose(radii, 5.0, atol=0.1)
  np.testing.assert_allclose(middle - bar[2].vertices[0], [40, 5], atol=0.1)
  (dots,) = figure.axes[0].collections
  np.testing.assert_allclose(dots.get_sizes(), (10 * picture.POINTS) ** 2)
  np.testing.assert_allclose(np.diff(dots.get_offsets(), axis=0), [[10, 1]])
  assert dots.get_alpha() == 0.6


def test_every_chart_of_the_page_can_be_drawn():
  """With the colours of the methods, the words and the legends."""
  x = np.arange(4.0)
  looks = {f'c{at}': one for at, one in enumerate(styles.STYLES.values())}
  series = [
    Series(style.name, css, style, x, x * at, x, x + 90)
    for at, (css, style) in enumerate(looks.items())
  ]
  colours = {css: style.colour for css, style in looks.items()}
  before, after = np.array([10.0, 20, 30]), np.array([40.0, 50, np.nan])
  change = clients.Change('FedAvg', 'c0', before, after)
  levels = clients.Levels('FedAvg', 'c0', [('mean', 20.0, 45.0)])
  shown = [
    *lines.curves('Over rounds', series, 'rounds', 'accuracy, %'),
    panels.Panel('Clients', clients.plot_clients([change]), 'Dot: a client.'),
    panels.Panel('Mean', clients.plot_levels([levels])),
    panels.Panel('Gain', clients.plot_gains(change, list('abc'), (0, 30))),
    partition.partition('Training', np.eye(3, dtype=int)[:2] * 9, [4, 5]),
  ]
  had_pyplot = 'matplotlib.pyplot' in sys.modules
  figure = picture.draw('A & b', shown, colours, notes=['A long note. ' * 30])
  # pyplot has global state, and opens windows.
  assert ('matplotlib.pyplot' in sys.modules) == had_pyplot
  texts = words(figure)
  expected = {'A & b', 'Over rounds', 'Dot: a client.', 'MOON 45.0', 'client'}
  assert expected <= {*texts}
  assert sum('A long note.' in text for text in texts) > 1  # broken
  outlines = {outline for _, outline, _ in shapes(figure)}
  assert {colour.lower() for colour in colours.values()} <= outlines
  size = figure.get_size_inches() * 100
  places = np.array([text.get_position() for text in figure.axes[0].texts])
  assert (places >= 0).all() and (places <= size).all()


# ---- the file and its numbers


@pytest.mark.parametrize('ending', ['.png', '.pdf', '.svg'])
def test_a_figure_and_its_numbers_are_saved(tmp_path, ending):
  numbers = map(figure_file.format_number, (1 / 3, np.nan))
  table = zip('xy', numbers, strict=True)
  out = tmp_path / 'new' / f'a{ending}'
  assert figure_file.save(draw(), out, ['name', 'value'], table) == out
  assert out.stat().st_size > 500
  with open(out.with_suffix('.csv'), newline='') as stream:
    assert [*csv.reader(stream)] == [
      ['name', 'value'],
      ['x', '0.3333'],
      ['y', ''],
    ]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(
    BadInput, match=r"output: got '.*file/a.png.*', expected a"
  ):
    figure_file.save(draw(), tmp_path / 'file' / 'a.png', [], [])
  with pytest.raises(BadInput, match=r'Choices: \.png, \.pdf, \.svg'):
    figure_file.save(draw(), tmp_path / 'a', [], [])
  assert [one.name for one in tmp_path.iterdir()] == ['file']
