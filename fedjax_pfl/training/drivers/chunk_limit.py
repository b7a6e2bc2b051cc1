"""How many clients may run side by side without too much padding."""

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated.padding_overhead import expected_waste, widest_chunk
from fedjax_pfl.training.experiment import Experiment


def chunk_of(experiment: Experiment) -> int | str:
  """Return the setting `clients_per_chunk`: 'auto' or a number."""
  chunk = experiment.settings.system.clients_per_chunk
  return chunk if chunk == 'auto' else int(chunk)


def limit_chunk(experiment: Experiment, stage: Stage, chunk: int | str) -> int:
  """Return the largest chunk to choose; log the share of padded steps.

  A chunk of one client has none, and is not logged.
  """
  settings, counts = experiment.settings, np.asarray(experiment.train.count)
  size = (
    settings.data.num_clients
    if stage.full_participation
    else experiment.cohort_size
  )
  batch_size = settings.training.batch_size
  if chunk == 'auto' and jax.default_backend() == 'cpu':
    return 1
  limit = widest_chunk(counts, size, batch_size) if chunk == 'auto' else chunk
  if limit > 1:
    share = expected_waste(counts, size, limit, batch_size)
    progress.log(
      f'{"At most " * (chunk == "auto")}{limit} clients side by side: '
      f'{100 * share:.1f} % of their steps wait for a larger client.'
    )
  return limit
