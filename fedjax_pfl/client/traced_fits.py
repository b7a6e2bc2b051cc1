"""Which batches the fits of a method have, without running any.

A method decides in its own code how many steps an epoch has: pFedMe takes
several on a batch, Per-FedAvg has a number of its own. Who forecasts a run
traces the method and asks what `fit` was given:

  with traced_fits() as batchings:
    jax.eval_shape(algorithm.local_update, *arguments)
"""

import contextlib
import contextvars
from collections.abc import Iterator

from fedjax_pfl.data.batching import Batching

_BATCHINGS: contextvars.ContextVar[list[Batching] | None] = (
  contextvars.ContextVar('batchings', default=None)
)


@contextlib.contextmanager
def traced_fits() -> Iterator[list[Batching]]:
  """Yield a list that gets the batches of every fit traced inside."""
  batchings: list[Batching] = []
  token = _BATCHINGS.set(batchings)
  try:
    yield batchings
  finally:
    _BATCHINGS.reset(token)


def note(batching: Batching) -> None:
  """Add the batches of a fit to the list, if someone asked for it."""
  batchings = _BATCHINGS.get()
  if batchings is not None:
    batchings.append(batching)
