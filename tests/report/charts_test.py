"""Arrays to drawings, and the looks of methods that no two share."""

import itertools
import re

import numpy as np
import pytest

from fedjax_pfl.report import styles
from fedjax_pfl.report.charts import clients, lines, partition, rows, svg
from fedjax_pfl.report.styles import STYLES, style_of


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


def one_line(label, x, y):
  style = style_of('fedavg')
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


@pytest.mark.parametrize('low', [-1.5, 43.0, 81.2])
def test_every_tick_is_inside(low):
  """Round ends may ask for other ticks than the numbers between them."""
  for high in np.linspace(low + 0.5, 99.0, 30):
    drawn = lines.plot_lines([one_line('a', [low, high], [low, high])], '', '')
    places = re.findall(r'<text x="36" y="(\S+)" class="end"', drawn)
    places = np.array(places, float) - 4
    assert places[-1] == lines.TOP
    assert places[0] == lines.HEIGHT - lines.BOTTOM


def test_gains_are_bars_and_losses_are_hollow():
  before, after = np.array([10.0, 50, 30, np.nan]), np.array([60.0, 40, 30, 9])
  change = clients.Change('x', 'c0', before, after)
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
  assert cloud.count('class="density"') == 2 and len(cloud) < 10_000


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
  sizes = [float(one) for one in attributes(drawn, 'path', 'stroke-width')]
  assert sizes[0] == sizes[2] == pytest.approx(2 * sizes[1], abs=0.2)
  assert drawn.count('class="empty"') == 1
  assert re.findall(r'<title>(.*?)</title>', drawn) == [
    'client 4: 125 examples of 2 classes',
    'client 5: 0 examples of 0 classes',
    'client 6: 300 examples of 3 classes',
  ]
  words = partition.describe_sizes
  assert words(counts) == '0 to 300 examples a client (1 have none)'
  assert words(counts[:1] * 20) == '2,500 examples a client'


# ---- a method looks the same in every figure and unlike all others


def test_every_method_has_a_look_of_its_own_that_can_be_drawn():
  looks = STYLES.values()
  for field in ('name', 'colour', 'dark'):
    assert len({getattr(style, field) for style in looks}) == len(looks)
  assert len({style.dash for style in looks}) > 4
  drawn = {}
  for style in looks:
    data = drawn[style.marker] = svg.marker(style.marker, 10.0, 10.0, 4.0)
    # Around its place, and of about the same size.
    corners = np.array(re.findall(r'[ML](\S+) ([^LzaM]+)', data), float)
    assert (np.abs(corners - 10) < 6).all() and data.endswith('z')
    assert (svg.dash_array(style.dash) is None) == (style.dash == '-')
  assert len({*drawn.values()}) == len(drawn)
  labels = styles.distinct_styles([f'{number}' for number in range(20)])
  assert len({(one.colour, one.marker) for one in labels.values()}) == 20


# The methods that the FedBABU paper puts into one table.
TOGETHER = (
  'fedavg fedbabu fedprox fedper lg_fedavg fedrep per_fedavg ditto local_only '
  'centralized'
)
DARK_GROUND = '#15181d'  # --card of report/page/page.css
TO_XYZ = np.array(
  [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
)
# Machado, Oliveira and Fernandes (2009): linear RGB as others see it.
EYES = {
  'normal': np.eye(3),
  'protanopia': np.array(
    [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
  ),
  'deuteranopia': np.array(
    [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
  ),
}


def linear(colour):
  value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
  return np.where(
    value <= 0.04, value / 12.92, ((value + 0.055) / 1.055) ** 2.4
  )


def lab(rgb):
  """Return CIELAB of linear RGB."""
  t = TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.0888]
  f = np.where(t > 0.00886, np.cbrt(t), 7.787 * t + 4 / 29)
  return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize('ground', ['colour', 'dark'])
@pytest.mark.parametrize('eye', EYES)
def test_methods_of_one_table_stay_apart(ground, eye):
  seen = {
    name: lab(EYES[eye] @ linear(getattr(STYLES[name], ground)))
    for name in TOGETHER.split()
  }
  for one, other in itertools.combinations(seen, 2):
    assert np.linalg.norm(seen[one] - seen[other]) > 17, (one, other)


def test_companions_are_seen_on_dark_ground():
  light = lambda colour: (TO_XYZ @ linear(colour))[1] + 0.05
  for name, style in STYLES.items():
    assert light(style.dark) / light(DARK_GROUND) > 3.9, name


def test_a_method_that_is_not_listed_has_a_look_and_its_name():
  one, other = style_of('fednap'), style_of('fednod')
  assert (one.name, other.name) == ('fednap', 'fednod') and one != other
  # By no hash() of Python's, which differs between processes.
  assert (one.colour, other.colour) == ('#CC3311', '#661100')
  mine = 'code/nap.py:fednap#4f0c8e21ab37'
  assert style_of(mine) == style_of(mine.partition('#')[0]) == one


@pytest.mark.parametrize('method', ['fedavg', 'fednap'])
def test_a_second_run_of_a_method_keeps_its_colour(method):
  first, second = style_of(method), style_of(f'{method} (run_2)')
  assert second.name == f'{styles.display_name(method)} (run_2)'
  assert second.colour == first.colour and second.dash != first.dash
