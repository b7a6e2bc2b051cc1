"""MLflow: experiment MLFLOW_EXPERIMENT_NAME, or else 'fedjax_pfl'.

Where to (MLFLOW_TRACKING_URI) and with which name and password is a matter of
its own environment: nothing of it is read or stored here.
"""

import os
import time
from typing import Any

from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.runs.trackers.tracker import (
  PROJECT,
  Begin,
  Numbers,
  Tracker,
  flat_scalars,
  scalars,
)

ROUND = 'round'  # the metric that says which rounds are there already
MOST_PARAMS = 100  # that MLflow takes at a time
# Unless the environment says otherwise. By its defaults, of 7 retries and 120
# s, a run without its server began after 4 minutes.
PATIENCE = {
  'MLFLOW_HTTP_REQUEST_MAX_RETRIES': '3',
  'MLFLOW_HTTP_REQUEST_TIMEOUT': '30',
}


def start(begin: Begin) -> Tracker:
  """Return the tracker of a run that is new, or is continued by its id."""
  from mlflow import MlflowClient

  for name, value in PATIENCE.items():
    os.environ.setdefault(name, value)
  client = MlflowClient()
  if begin.id is not None:
    client.update_run(begin.id, status='RUNNING')
    steps = [point.step for point in client.get_metric_history(begin.id, ROUND)]
    return _Run(client, begin.id, max(steps, default=-1))
  name = begin.folder.resolve().name
  run = client.create_run(_experiment(client), run_name=name)
  _log_config(client, run.info.run_id, begin.config)
  return _Run(client, run.info.run_id, -1)


def _experiment(client: Any) -> str:
  """Return the id of the experiment, which is made if there is none."""
  name = os.environ.get('MLFLOW_EXPERIMENT_NAME') or PROJECT
  found = client.get_experiment_by_name(name)
  return found.experiment_id if found else client.create_experiment(name)


def _log_config(client: Any, run_id: str, config: Numbers) -> None:
  from mlflow.entities import Param

  params = [Param(name, str(value)) for name, value in flatten(config).items()]
  for first in range(0, len(params), MOST_PARAMS):
    client.log_batch(run_id, params=params[first : first + MOST_PARAMS])


class _Run:
  def __init__(self, client, run_id: str, last: int):
    self._client, self._last = client, last
    self.id = run_id
    self.place = f'run {run_id} of {client.tracking_uri}'

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Send the numbers, unless those of this round are there already."""
    if step > self._last:  # MLflow would keep both
      self._send({**scalars(numbers), ROUND: step}, step, now)
      self._last = step

  def finish(self, result: Numbers | None) -> None:
    if result is not None:
      self._send(flat_scalars(result), max(self._last, 0), time.time())
    status = 'KILLED' if result is None else 'FINISHED'
    self._client.set_terminated(self.id, status)

  def _send(self, numbers: dict[str, float], step: int, now: float) -> None:
    from mlflow.entities import Metric

    stamp = int(1000 * now)  # in milliseconds
    metrics = [Metric(name, n, stamp, step) for name, n in numbers.items()]
    self._client.log_batch(self.id, metrics=metrics)
