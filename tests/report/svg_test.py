"""Arrays to drawings: the numbers are where they belong."""

import re

import numpy as np
import pytest

from fedjax_pfl.report import styles
from fedjax_pfl.report.charts import (
  clients,
  lines,
  partition,
  rows,
  scatter,
  svg,
)


def attributes(drawing, tag, name):
  """Return the attribute of every element of this kind."""
  return re.findall(rf'<{tag}[^>]* {name}="([^"]*)"', drawing)


def test_elements_escape_what_is_in_them():
  made = svg.tag('text', 'a < "b"', x=1.04, class_='<', aria_label=None)
  assert made == '<text x="1" class="&lt;">a &lt; &#34;b&#34;</text>'
  assert svg.tag('g', svg.tag('a')) == '<g><a></a></g>'


@pytest.mark.parametrize(
  ('low', 'high', 'expected'),
  [(3, 98, (0, 100)), (81.2, 84.9, (81, 85)), (5, 5, (5, 6)), (0, 0, (0, 0.2))],
)
def test_ticks_are_round_and_enclose(low, high, expected):
  ticks = svg.ticks(low, high)
  assert (ticks[0], ticks[-1]) == expected
  assert 2 <= len(ticks) <= 9


def test_every_look_can_be_drawn():
  drawn = set()
  for style in styles.STYLES.values():
    data = svg.marker(style.marker, 10.0, 10.0, 4.0)
    # Around its place, and of about the same size.
    corners = np.array(re.findall(r'[ML](\S+) ([^LzaM]+)', data), float)
    assert (np.abs(corners - 10) < 6).all() and data.endswith('z')
    drawn.add((style.marker, data))
    assert (svg.dash_array(style.dash) is None) == (style.dash == '-')
  assert len({data for _, data in drawn}) == len({kind for kind, _ in drawn})


def one_line(label, x, y):
  style = styles.style_of('fedavg')
  return lines.Series(label, 'c0', style, np.array(x, float), np.array(y))


def test_a_line_stands_where_its_numbers_are():
  line = one_line('a < b', [0, 5, 10], [0.0, np.nan, 100])
  drawn = lines.plot_lines([line], 'rounds', 'accuracy', begins=[5.0])
  (data,) = re.findall(r'<path d="([^"]*)" class="line"', drawn)
  left, top = lines.LEFT, lines.TOP
  right, bottom = lines.WIDTH - lines.RIGHT, lines.HEIGHT - lines.BOTTOM
  # Broken where a number is missing, not drawn across.
  assert data == f'M{left} {bottom}M{right} {top}'
  middle = (left + right) // 2
  assert f'd="M{middle} {top}L{middle} {bottom}" class="grid"' in drawn
  assert '<title>a &lt; b, 10: 100.0</title>' in drawn
  assert drawn.count('<title>') == 2


@pytest.mark.parametrize('low', [-1.5, 0.0, 43.0, 81.2])
def test_every_tick_is_inside(low):
  """Round ends may ask for other ticks than the numbers between them."""
  for high in np.linspace(low + 0.5, 99.0, 30):
    drawn = lines.plot_lines([one_line('a', [low, high], [low, high])], '', '')
    places = re.findall(r'<text x="36" y="(\S+)" class="end"', drawn)
    places = np.array(places, float) - 4
    assert places[-1] == lines.TOP
    assert places[0] == lines.HEIGHT - lines.BOTTOM


def test_gains_are_bars_and_losses_are_hollow():
  change = clients.Change(
    'x', 'c0', np.array([10.0, 50, 30, np.nan]), np.array([60.0, 40, 30, 9])
  )
  assert clients.ends_of([change]) == (-10, 50)
  drawn = clients.plot_gains(change, list('abcd'), (-10, 50))
  assert re.findall(r'<title>(.)', drawn) == ['a', 'c', 'b']  # sorted
  assert attributes(drawn, 'rect', 'class') == ['bar', 'bar', 'bar lost']
  heights = [float(h) for h in attributes(drawn, 'rect', 'height')]
  assert heights[0] == pytest.approx(5 * heights[2], rel=0.02)


def test_many_clients_are_a_shape():
  many = np.linspace(0, 100, 5000)
  change = clients.Change('x', 'c0', many, many[::-1])
  drawn = clients.plot_gains(change, [''] * 5000, (-100, 100))
  assert len(drawn) < 30_000 and '<rect' not in drawn
  cloud = clients.plot_clients([change])
  assert cloud.count('class="density"') == 2
  assert len(cloud) < 10_000


def test_intervals_stand_in_their_rows():
  shown = [
    rows.Row('a heading'),
    rows.Row('A > B', [rows.Mark(5.0, 0.0, 10.0)], ('shown',), 'c1', 'tip'),
    rows.Row('A > C', [rows.Mark(-5.0, -5.0, -5.0, 'ours', 'hollow', 'D')]),
    rows.Row('none', [rows.Mark(np.nan, np.nan, np.nan)], ('not run',)),
  ]
  drawn = rows.plot_intervals(shown, 'points', margins=(100, 60))
  x = svg.Scale(-6, 10, 100, 500)
  assert f'M{x(0):g} 36L{x(10):g} 36" class="link"' in drawn
  assert drawn.count('class="mark"') == drawn.count('class="hollow"') == 1
  assert '<g class="ours">' in drawn and '<title>tip</title>' in drawn
  words = re.findall(r'<text[^>]*>([^<]*)<', drawn)
  expected = ['a heading', 'A > B', 'shown', 'A > C', 'none', 'not run']
  assert [word.replace('&gt;', '>') for word in words[-6:]] == expected


def test_dots_have_the_area_of_their_counts():
  counts = np.array([[100, 25, 0], [0, 0, 0], [100, 100, 100]])
  drawn = partition.plot_partition(counts, [4, 5, 6], 100)
  full, half, same = (
    float(one) for one in attributes(drawn, 'path', 'stroke-width')
  )
  assert full == same == pytest.approx(2 * half, abs=0.2)
  assert drawn.count('class="empty"') == 1
  assert re.findall(r'<title>(.*?)</title>', drawn) == [
    'client 4: 125 examples of 2 classes',
    'client 5: 0 examples of 0 classes',
    'client 6: 300 examples of 3 classes',
  ]
  words = partition.describe_sizes
  assert words(counts) == '0 to 300 examples a client (1 have none)'
  assert words(counts[:1] * 20) == '2,500 examples a client'


# ---- points in classes


def test_points_of_a_group_have_one_colour_marker_and_name():
  points = np.array([[0.0, 0], [1, 0], [2, 0], [9, 9], [9, 8]])
  group = np.array([4, 4, 4, 1, 1])
  panel, colours = scatter.plot_points('t', points, group, list('abcdef'))
  shapes = dict(re.findall(r'd="([^"]*)" class="swatch (g\d)"', panel.svg))
  sizes = {css: data.count('z') for data, css in shapes.items()}
  assert sizes == {'g1': 2, 'g4': 3}
  assert {*colours} == {*sizes} and len({*colours.values()}) == 2
  names = re.findall(r'<text x="(\S+)"[^>]*>(\w)<', panel.svg)
  x = {name: float(place) for place, name in names}
  assert x['e'] < 200 < 400 < x['b']


def test_many_groups_are_named_in_the_legend_alone():
  many, labels = np.arange(20), [f'group {number}' for number in range(20)]
  points = np.stack([many, many], 1).astype(float)
  panel, _ = scatter.plot_points('t', points, many, labels)
  assert [key.label for key in panel.keys] == labels
  assert '<text' not in panel.svg
  found = styles.distinct_styles(labels).values()
  assert len({(style.colour, style.marker) for style in found}) == 20


def test_names_of_groups_that_mix_are_not_one_on_the_other():
  """All of group 1 lies on points of group 0, which is alone at the right."""
  points = np.array([[0.0, 0], [0, 0], [0, 0], [6, 14], [6, 14], [0, 0]])
  places = scatter.name_places(points, np.array([1, 1, 0, 0, 0, 0]))
  np.testing.assert_allclose(places[0], [5.5, 13.5])
  np.testing.assert_allclose(places[1], [0.5, 0.5])
  same = scatter.name_places(np.zeros((4, 2)), np.array([0, 1, 2, 3]))
  assert len({tuple(place) for place in same.values()}) == 4
