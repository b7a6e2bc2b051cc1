"""Divide the tests of every client: one half to adapt on, one to evaluate."""

from fedjax_pfl.core.types import ClientData

# What a client adapts on: its training data, or half of its tests.
ADAPT_ON = ('train', 'test_half')


def halves(data: ClientData) -> tuple[ClientData, ClientData]:
  """Return every other example of every client [K, N], and the others.

  Alternating, because clients hold their examples sorted by class: the first
  and the second half would have different classes. With an odd number of
  examples the second result has one more.
  """
  width = data.index.shape[1]
  half = data.count // 2  # [K]
  return (
    data._replace(index=data.index[:, min(1, width - 1) :: 2], count=half),
    data._replace(index=data.index[:, ::2], count=data.count - half),
  )
