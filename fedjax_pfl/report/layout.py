"""Matplotlib figures with a legend below; no window, no global state."""

STYLE = {'frameon': False, 'handlelength': 3}  # of a legend


def make_figure(columns: int, width: float, height: float, **options):
  """Return a Figure and its axes, side by side, each `width` inches wide."""
  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure(figsize=(columns * width + 0.6, height), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  axes = figure.subplots(1, columns, squeeze=False, **options)
  return figure, list(axes[0])


def add_legend(figure, ax, **options) -> None:
  """Put the legend of an axis below the figure, in as many columns as fit."""
  columns = _columns(ax, figure.get_figwidth())
  handles, _ = ax.get_legend_handles_labels()
  place = 'outside lower center'
  figure.legend(handles=handles, loc=place, ncols=columns, **STYLE, **options)


def add_legends(figure, axes, **options) -> None:
  """Put one legend below the figure, or, where axes differ, one below each."""
  labels = [ax.get_legend_handles_labels()[1] for ax in axes]
  if all(one == labels[0] for one in labels):
    add_legend(figure, axes[0], **options)
    return
  for ax in axes:
    columns = _columns(ax, figure.get_figwidth() / len(axes))
    place = {'loc': 'upper center', 'bbox_to_anchor': (0.5, -0.14)}
    ax.legend(ncols=columns, **place, **STYLE, **options)


def _columns(ax, width: float) -> int:
  """Return how many columns of a legend fit into so many inches."""
  _, labels = ax.get_legend_handles_labels()
  inches = 0.8 + 0.085 * max(map(len, labels))  # of the widest entry
  return max(1, min(int(width / inches), len(labels)))
