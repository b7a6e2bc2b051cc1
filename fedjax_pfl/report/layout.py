"""Matplotlib figures with a legend below; no window, no global state."""


def make_figure(columns: int, width: float, height: float, **options):
  """Return a Figure and its axes, side by side, each `width` inches wide."""
  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure(figsize=(columns * width + 0.6, height), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  axes = figure.subplots(1, columns, squeeze=False, **options)
  return figure, list(axes[0])


def add_legend(figure, ax, **options) -> None:
  """Put the legend of an axis below the figure, in as many columns as fit."""
  handles, labels = ax.get_legend_handles_labels()
  inches = 0.8 + 0.085 * max(map(len, labels))  # of the widest entry
  columns = int(figure.get_figwidth() / inches)
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=max(1, min(columns, len(handles))),
    frameon=False,
    handlelength=3,
    **options,
  )
