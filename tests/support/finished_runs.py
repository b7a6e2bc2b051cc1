"""Run directories as finished runs leave them, without any training."""

import json
from pathlib import Path

import numpy as np

from configs import digits
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients

K = 5
TRAIN_COUNT = np.array([70, 71, 72, 0, 74])
COUNT = np.array([10, 20, 30, 40, 50])


def make_settings(**changes):
  return {**digits.get_config('fedbabu').to_dict(), **changes}


def make_scores(seed=0, more=0.0):
  rng = np.random.default_rng(seed)
  correct = rng.integers(0, COUNT)
  loss, ece = rng.random((2, K)) + more
  return Scores(correct, COUNT, loss, np.minimum(correct + 2, COUNT), ece, ece)


# As Run.log writes them, without TensorBoard's file.
LINES = (
  {'round': 4, 'time': 1000.0, 'images_per_second': 90.0, 'bytes_up': 7},
  {'round': 8, 'time': 1001.0, 'images_per_second': 110.0, 'bytes_up': 8},
  {'round': 12, 'time': 1002.0, 'images_per_second': 100.0, 'bytes_up': 9},
)


def make_run(
  path, *, data='images-clients', views=('initial',), scores=None, model=b'',
  settings=None, result=(), seed=0, more=0.0, lines=LINES, of_clients=(),
  **changes,
):  # fmt: skip
  """Make the directory of a finished run; `more` is added to its losses."""
  path = Path(path)
  settings = settings or make_settings(seed=seed, **changes)
  run = run_dir.open_run(path, settings, data=data, log=print)
  count = len(next(iter(scores.values())).count) if scores else K
  trained = np.full(count, 40) if scores else TRAIN_COUNT
  scores = scores or {
    view: make_scores(seed + number, more) for number, view in enumerate(views)
  }
  text = ''.join(json.dumps(line) + '\n' for line in lines)
  (path / 'metrics.jsonl').write_text(text)
  if model:
    atomic_files.write_bytes(run.model_path('global'), model)
  ids = np.arange(count)
  run.write_clients(Clients(ids, trained, scores, **dict(of_clients)))
  run.write_result(
    **{'rounds': 16, 'seconds': 12.0 + more, **dict(result)},
    algorithm=settings['algorithm'],
    dataset=settings['dataset'],
    views={view: summarise(one, trained) for view, one in scores.items()},
  )
  run.close()
  return path
