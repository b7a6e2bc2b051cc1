"""Figures of how alike the clients' layers are."""

from collections.abc import Mapping

import numpy as np

from fedjax_pfl.report.plots import Axis, tidy

MARKERS = 'osD^vP<>Xhp'


def plot_layers(ax: Axis, cosines: Mapping[str, np.ndarray]) -> Axis:
  """Draw the mean cosine of every layer [E + 1] against fine-tuning epochs.

  Layers come in order of depth, from light to dark; the last, the head, is
  black and thick.
  """
  import matplotlib  # 0.2 s

  *body, head = cosines
  shades = matplotlib.colormaps['viridis_r'](
    np.linspace(0.15, 0.85, max(len(body), 1))
  )
  for number, (layer, values) in enumerate(cosines.items()):
    is_head = layer == head
    ax.plot(
      np.arange(len(values)),
      values,
      color='black' if is_head else shades[number],
      linewidth=2.4 if is_head else 1.6,
      marker='*' if is_head else MARKERS[number % len(MARKERS)],
      markersize=8 if is_head else 5,
      markevery=max(1, (len(values) - 1) // 5),
      label=layer,
    )
  ax.set_xlim(0, max(len(values) for values in cosines.values()) - 1)
  ax.yaxis.get_major_formatter().set_useOffset(False)  # '+1' is overlooked
  ax.set_xlabel('fine-tuning epochs')
  ax.set_ylabel('mean cosine between clients')
  ax.xaxis.get_major_locator().set_params(integer=True)
  return tidy(ax)
