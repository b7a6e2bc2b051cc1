"""What validation chooses: a setting, and the view in which it is shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core.rules import is_number
from fedjax_pfl.results.runs.entry import Fields, Paths, Tuned
from fedjax_pfl.results.runs.run import INITIAL
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.divergence import sentence_of
from fedjax_pfl.training.views import FINETUNED, candidate_views

EPOCHS = 'finetune.epochs'


def choose(
  candidates: Sequence[Fields], groups: Sequence[Paths]
) -> Tuned | None:
  """Return the candidate and the view with the best accuracy on validation.

  Each group has the runs of a candidate, one for every tuning seed; the
  accuracy is that of the last round, the mean over clients, then over seeds. Of
  equal ones the first candidate, then its first view. One with which a seed
  diverged is no candidate; None if all did.
  """
  found = []
  for fields, paths in zip(candidates, groups, strict=True):
    if any(map(sentence_of, paths)):
      continue
    lines = [run_dir.load_metrics(path)[-1] for path in paths]
    config = run_dir.load_config(paths[0])['config']
    ends = tuple(name for name in fields if _is_end(name, fields, candidates))
    views = candidate_views(parse_config(config))
    for view in views:
      accuracy = np.mean([line[f'validation/{view}'] for line in lines])
      own = (*ends, *[EPOCHS] * _is_end_of_epochs(view, views))
      found.append(Tuned(fields, view, float(accuracy), own))
  return max(found, key=lambda one: one.accuracy, default=None)


def _is_end(name: str, fields: Fields, candidates: Sequence[Fields]) -> bool:
  values: set[Any] = {own[name] for own in candidates}
  are_numbers = len(values) > 1 and all(map(is_number, values))
  return are_numbers and fields[name] in (min(values), max(values))


def _is_end_of_epochs(view: str, views: Sequence[str]) -> bool:
  """Return whether it has most epochs, or least: no number is below 0."""
  ends = {views[0], views[-1]} - {INITIAL}
  return views[-1] == FINETUNED and len(views) > 1 and view in ends
