"""What a page may begin with: a question about its runs, and the answers.

Its heading and first sentence stand in the place of the page's own, a table
before the summary, and a chart for each pair of methods that share clients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.report.page.client_charts import Clients, plot_gains
from fedjax_pfl.report.page.groups import Group
from fedjax_pfl.report.page.sections import Panel, Section
from fedjax_pfl.report.page.table_cells import Table


class Pair(NamedTuple):
  """The accuracies of the same clients with two methods, in percent."""

  label: str
  method: str  # the algorithm whose colour is used
  first: np.ndarray  # [K]
  second: np.ndarray  # [K]
  names: Sequence[str]  # of the clients
  note: str


class Opening(NamedTuple):
  title: str
  lead: str
  table: Table
  pairs: Sequence[Pair] = ()


def make_section(opening: Opening, groups: Sequence[Group]) -> Section | None:
  """Return the section of pairs; None without any."""
  if not opening.pairs:
    return None
  css = {group.runs[0].result['algorithm']: group.css for group in groups}
  changes = [
    Clients(pair.label, css.get(pair.method, ''), pair.second, pair.first)
    for pair in opening.pairs
  ]
  values = np.concatenate([one.after - one.before for one in changes])
  values = values[np.isfinite(values)]
  ends = (min(0.0, values.min(initial=0)), max(1.0, values.max(initial=0)))
  panels = [
    Panel(
      pair.label,
      plot_gains(change, pair.names, ends, word='difference'),
      pair.note,
      css=change.css,
    )
    for pair, change in zip(opening.pairs, changes, strict=True)
  ]
  words = (
    'One bar for each client: its accuracy with the first method less that '
    'with the second, from the largest to the smallest; all charts share one '
    'axis.'
  )
  return Section('Client by client', words, panels)
