"""Charts of lines for the figures of analyses."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedjax_pfl.report.charts.lines import Series, curves
from fedjax_pfl.report.charts.panels import Panel
from fedjax_pfl.report.styles import Style

Line = tuple[Style, np.ndarray, np.ndarray]  # the style, x [T] and y [T]


def chart(
  title: str,
  lines: Iterable[Line],
  labels: tuple[str, str],
  *,
  begins: Sequence[float] = (),
  css: str = 'c',
  digits: int = 1,
) -> tuple[list[Panel], dict[str, str]]:
  """Return the chart, and {css class: colour}, of which each begins with `css`.

  Args:
    title: above the chart.
    lines: each under the name of its style.
    labels: of the axes, x first.
    begins: where an upright line stands.
    css: begins the classes; charts with other colours need another one.
    digits: behind the point, in the legend.
  """
  series = [
    Series(style.name, f'{css}{at}', style, x, y, digits=digits)
    for at, (style, x, y) in enumerate(lines)
  ]
  colours = {one.css: one.style.colour for one in series}
  return curves(title, series, *labels, begins), colours
