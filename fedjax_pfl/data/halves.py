"""Divide the tests of every client into two halves: to adapt on, to evaluate.

The Per-FedAvg paper adapts a client on one half of its tests.
"""

from fedjax_pfl.core.types import ClientData

# What a client adapts on: its training data, or half of its tests.
ADAPT_ON = ('train', 'test_half')


def halves(data: ClientData) -> tuple[ClientData, ClientData]:
  """Return every other example of every client [K, N], and the rest.

  By turns, because clients hold their examples sorted by class: halves in a
  row would hold other classes. The rest has the odd one.
  """
  width = data.index.shape[1]
  few = data.count // 2  # [K]
  return (
    data._replace(index=data.index[:, min(1, width - 1) :: 2], count=few),
    data._replace(index=data.index[:, ::2], count=data.count - few),
  )
