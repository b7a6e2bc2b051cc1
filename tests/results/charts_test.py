"""Arrays to drawings, and the looks of methods that no two share."""

import re

import numpy as np
import pytest

from fedjax_pfl.algorithms import available
from fedjax_pfl.results.charts import lines, partition, rows, svg
from fedjax_pfl.results.page import styles
from fedjax_pfl.results.page.styles import STYLES, style_of


def attributes(drawing, tag, name):
  """Return the attribute of every element of this kind."""
  return re.findall(rf'<{tag}[^>]* {name}="([^"]*)"', drawing)


def one_line(label, x, y):
  return lines.Series(label, 'c0', (), 'o', np.array(x, float), np.array(y))


def test_a_line_stands_where_its_numbers_are():
  line = one_line('a < b', [0, 5, 10], [0.0, np.nan, 100])
  (panel,) = lines.curves('', [line], 'rounds', 'accuracy')
  drawn = panel.svg
  (data,) = re.findall(r'<path d="([^"]*)" class="line"', drawn)
  left, top = lines.LEFT, lines.TOP
  right, bottom = lines.WIDTH - lines.RIGHT, lines.HEIGHT - lines.BOTTOM
  # Broken where a number is missing, not drawn across.
  assert data == f'M{left} {bottom}M{right} {top}'
  assert '<title>a &lt; b, 10: 100.0</title>' in drawn
  assert drawn.count('<title>') == 2


def test_gains_are_bars_and_losses_are_hollow():
  before, after = np.array([10.0, 50, 30, np.nan]), np.array([60.0, 40, 30, 9])
  change = rows.Change('x', 'c0', before, after)
  assert rows.ends_of([change]) == (-10, 50)
  drawn = rows.plot_gains(change, list('abcd'), (-10, 50))
  assert re.findall(r'<title>(.)', drawn) == ['a', 'c', 'b']  # sorted
  assert attributes(drawn, 'rect', 'class') == ['bar', 'bar', 'bar lost']
  heights = [float(h) for h in attributes(drawn, 'rect', 'height')]
  assert heights[0] == pytest.approx(5 * heights[2], rel=0.02)
  ticks = [svg._tick(mark, True)[1] for mark in (-0.2, 0.0, 0.2, 1.0)]
  assert ticks == ['-0.2', '0', '+0.2', '+1']


def test_dots_have_the_area_of_their_counts():
  counts = np.array([[100, 25, 0], [0, 0, 0], [100, 100, 100]])
  drawn = partition.partition('', counts, [4, 5, 6]).svg
  sizes = [float(one) for one in attributes(drawn, 'path', 'stroke-width')]
  assert sizes[0] == sizes[2] == pytest.approx(2 * sizes[1], abs=0.2)
  assert drawn.count('class="empty"') == 1
  assert re.findall(r'<title>(.*?)</title>', drawn) == [
    'client 4: 125 examples of 2 classes',
    'client 5: 0 examples of 0 classes',
    'client 6: 300 examples of 3 classes',
  ]


# ---- a method looks the same in every figure and unlike all others


def test_every_method_has_a_look_of_its_own_that_can_be_drawn():
  looks = STYLES.values()
  for field in ('colour', 'dark'):
    assert len({getattr(style, field) for style in looks}) == len(looks)
  assert len({style.dash for style in looks}) > 4
  markers = {style.marker for style in looks}
  drawn = {svg.marker(marker, 10.0, 10.0, 4.0, 'mark') for marker in markers}
  assert len(drawn) == len(markers)
  pairs = {style_of(name)[:4:3] for name in available()}  # colour and marker
  assert len(pairs) == len(available())


def test_a_method_that_is_not_listed_has_a_look_and_its_name():
  one, other = style_of('fednap'), style_of('fednod')
  assert (one.name, other.name) == ('fednap', 'fednod') and one != other
  # By no hash() of Python's, which differs between processes.
  assert (one.colour, other.colour) == ('#CC3311', '#661100')
  mine = 'code/nap.py:fednap#4f0c8e21ab37'
  assert style_of(mine) == style_of(mine.partition('#')[0]) == one
  assert style_of(f'run (1)/{mine}') == one
  assert style_of(f'run (1)/{mine} (runs/a)').name == 'fednap (runs/a)'


@pytest.mark.parametrize('method', ['fedavg', 'fednap'])
def test_a_second_run_of_a_method_keeps_its_colour(method):
  first, second = style_of(method), style_of(f'{method} (run_2)')
  assert second.name == f'{styles.display_name(method)} (run_2)'
  assert second.colour == first.colour
