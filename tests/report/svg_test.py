"""Arrays to drawings: the numbers are where they belong."""

import re

import numpy as np
import pytest

from fedjax_pfl.report import styles
from fedjax_pfl.report.page import charts, client_charts, partition_chart, svg


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


def test_a_line_stands_where_its_numbers_are():
  style = styles.style_of('fedavg')
  line = charts.Series(
    'a < b',
    'c0',
    style,
    np.array([0.0, 5, 10]),
    np.array([0.0, np.nan, 100]),
  )
  drawn = charts.plot_lines([line], 'rounds', 'accuracy')
  (data,) = re.findall(r'<path d="([^"]*)" class="line"', drawn)
  left, top = charts.LEFT, charts.TOP
  right, bottom = charts.WIDTH - charts.RIGHT, charts.HEIGHT - charts.BOTTOM
  # Broken where a number is missing, not drawn across.
  assert data == f'M{left} {bottom}M{right} {top}'
  assert '<title>a &lt; b, 10: 100.0</title>' in drawn
  assert drawn.count('<title>') == 2


@pytest.mark.parametrize('low', [-1.5, 0.0, 43.0, 81.2])
def test_every_tick_is_inside(low):
  """Round ends may ask for other ticks than the numbers between them."""
  for high in np.linspace(low + 0.5, 99.0, 30):
    ends = np.array([low, high])
    line = charts.Series('a', 'c0', styles.style_of('fedavg'), ends, ends)
    drawn = charts.plot_lines([line], '', '')
    places = re.findall(r'<text x="36" y="(\S+)" class="end"', drawn)
    places = np.array(places, float) - 4
    assert places[-1] == charts.TOP
    assert places[0] == charts.HEIGHT - charts.BOTTOM


def test_gains_are_bars_and_losses_are_hollow():
  one = client_charts.Clients(
    'x', 'c0', np.array([10.0, 50, 30, np.nan]), np.array([60.0, 40, 30, 9])
  )
  drawn = client_charts.plot_gains(one, list('abcd'), (-10, 50))
  assert re.findall(r'<title>(.)', drawn) == ['a', 'c', 'b']  # sorted
  assert attributes(drawn, 'rect', 'class') == ['bar', 'bar', 'bar lost']
  heights = [float(h) for h in attributes(drawn, 'rect', 'height')]
  assert heights[0] == pytest.approx(5 * heights[2], rel=0.02)


def test_many_clients_are_a_shape():
  many = np.linspace(0, 100, 5000)
  one = client_charts.Clients('x', 'c0', many, many[::-1])
  drawn = client_charts.plot_gains(one, [''] * 5000, (-100, 100))
  assert len(drawn) < 30_000 and '<rect' not in drawn
  cloud = client_charts.plot_clients([one])
  assert cloud.count('class="density"') == 2
  assert len(cloud) < 10_000


def test_dots_have_the_area_of_their_counts():
  counts = np.array([[100, 25, 0], [0, 0, 0], [100, 100, 100]])
  drawn = partition_chart.plot_partition(counts, [4, 5, 6], 100)
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
