"""A method looks the same in every figure and unlike all others."""

import itertools

import numpy as np
import pytest

from fedjax_pfl.report import styles
from fedjax_pfl.report.styles import STYLES, style_of


def test_every_method_has_a_look_of_its_own():
  looks = STYLES.values()
  for field in ('name', 'colour', 'dark'):
    assert len({getattr(style, field) for style in looks}) == len(looks)
  assert len({style.dash for style in looks}) > 4


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
  assert style_of(mine) == one
  assert style_of(mine.partition('#')[0]) == one


@pytest.mark.parametrize('method', ['fedavg', 'fednap'])
def test_a_second_run_of_a_method_keeps_its_colour(method):
  first, second = style_of(method), style_of(f'{method} (run_2)')
  assert second.name == f'{styles.display_name(method)} (run_2)'
  assert second.colour == first.colour and second.dash != first.dash
