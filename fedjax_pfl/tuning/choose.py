"""Choose the best of many settings on examples that nobody trained on.

  argmax over settings of  mean over seeds of  mean over clients of a_sk

where a_sk is the accuracy of client k's model, of seed s, on its validation
examples. Of equal settings the first is chosen. No test reaches the choice.
"""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partition import SAME_CLIENTS
from fedjax_pfl.evaluation.differences import Difference, paired_difference
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.runs import run_dir
from fedjax_pfl.tuning.train_all import is_diverged


class BestSetting(NamedTuple):
  """The best of some groups: each has the runs of one setting, one a seed."""

  best: int  # its place
  second: int | None  # of those with finite numbers
  means: tuple[float, ...]  # in percent; NaN where a run diverged
  lead: Difference  # the best less the second; NaN without a second
  by_seed: tuple[tuple[float, ...], ...]  # [group][seed], whose means are means


def best_on_validation(
  groups: Sequence[Sequence[str | os.PathLike]],
) -> BestSetting:
  """Return the choice among groups of finished runs, the same seeds in each."""
  configs = [
    [run_dir.load_config(path)['config'] for path in group] for group in groups
  ]
  seeds = [[one['seed'] for one in group] for group in configs]
  if not seeds or not seeds[0] or any(own != seeds[0] for own in seeds):
    raise bad_input(
      'groups',
      got=seeds,
      expected='one or more groups of runs, with the same seeds in each',
    )
  clients = [[_accuracies(path) for path in group] for group in groups]
  by_seed = tuple(tuple(map(_mean, group)) for group in clients)
  means = tuple(float(np.mean(group)) for group in by_seed)
  finite = [place for place, mean in enumerate(means) if math.isfinite(mean)]
  if not finite:
    raise bad_input(
      'sweep',
      got=f'{len(groups)} settings, in each of which a run diverged',
      expected='a setting whose runs stay finite',
      cause='learning rates that are too high for this model',
    )
  best, *rest = sorted(finite, key=lambda place: -means[place])
  if not rest:
    return BestSetting(best, None, means, Difference(math.nan), by_seed)
  pair, own = (clients[best], clients[rest[0]]), configs[best][0]
  # Which clients come later, or share a domain, is drawn.
  is_drawn = own.get('unseen_clients') or own.get('clients_per_domain', 1) > 1
  same = own['partition'] in SAME_CLIENTS and not is_drawn
  lead = paired_difference(*pair, same_clients=same)
  return BestSetting(best, rest[0], means, lead, by_seed)


def _mean(accuracy: np.ndarray) -> float:
  """Return the mean over clients with validation examples; NaN of none."""
  used = accuracy[~np.isnan(accuracy)]
  return float(used.mean()) if used.size else math.nan


def _accuracies(path: str | os.PathLike) -> np.ndarray:
  """Return the accuracy of every client on validation; NaN if it diverged."""
  if is_diverged(path):
    return np.array([math.nan])
  run_dir.load_result(path)  # refuses a run that is not finished
  clients = run_dir.load_clients(path)
  if clients.validation is None:
    raise bad_input(
      'validation_fraction',
      got=f'{path}, a run without validation examples',
      expected='runs that kept some for choosing',
      choices=['validation_fraction=0.1'],
      cause='the field was forgotten; or an older version ended the run: '
      'without its result.json the same command ends it again',
    )
  return accuracies(clients.validation, clients.train_count)
