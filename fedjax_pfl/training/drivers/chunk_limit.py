"""The largest chunk of a run: see federated/chunking.py."""

import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.chunking import chunk_limit
from fedjax_pfl.federated.padding_overhead import expected_overhead
from fedjax_pfl.training.build import Experiment


def limit_chunk(experiment: Experiment, stage: Stage) -> int:
  """Return the largest chunk to choose; log its padding overhead.

  A chunk of one client has none, and is not logged.
  """
  settings, counts = experiment.settings, np.asarray(experiment.train.count)
  size = (
    settings.data.num_seen_clients
    if stage.full_participation
    else experiment.cohort_size
  )
  batch_size = settings.training.batch_size
  chunk = settings.system.clients_per_chunk
  limit = chunk_limit(chunk, counts, size, batch_size)
  if limit > 1:
    share = expected_overhead(counts, size, limit, batch_size)
    progress.log(
      f'{"At most " * (chunk == "auto")}{limit} clients at a time: padding '
      f'overhead {100 * share:.1f} % of their steps.'
    )
  return limit
