"""MLflow: experiment MLFLOW_EXPERIMENT_NAME, or else 'fedjax_pfl'.

Where to (MLFLOW_TRACKING_URI) and with which name and password is a matter of
its own environment: nothing of it is read or stored here.
"""

import os
import time

from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.runs.trackers import PROJECT, Begin, Numbers, scalars

ROUND = 'round'  # the metric that says which rounds are there already
MOST_PARAMS = 100  # that MLflow takes at a time
# Unless the environment says otherwise. By its defaults, of 7 retries and 120
# s, a run without its server began after 4 minutes.
PATIENCE = {
  'MLFLOW_HTTP_REQUEST_MAX_RETRIES': '3',
  'MLFLOW_HTTP_REQUEST_TIMEOUT': '30',
}


class Run:
  """A run that is new, or is continued by its id."""

  def __init__(self, begin: Begin):
    from mlflow import MlflowClient

    for name, value in PATIENCE.items():
      os.environ.setdefault(name, value)
    self._client, self._last = MlflowClient(), -1
    if begin.id is None:
      self.id = self._create(begin)
    else:
      self.id = begin.id
      self._client.update_run(self.id, status='RUNNING')
      points = self._client.get_metric_history(self.id, ROUND)
      self._last = max((point.step for point in points), default=-1)
    self.place = f'run {self.id} of {self._client.tracking_uri}'

  def _create(self, begin: Begin) -> str:
    """Return the id of a new run; its experiment is made if there is none."""
    from mlflow.entities import Param

    name = os.environ.get('MLFLOW_EXPERIMENT_NAME') or PROJECT
    found = self._client.get_experiment_by_name(name)
    experiment = (
      found.experiment_id if found else self._client.create_experiment(name)
    )
    run_name = begin.folder.resolve().name
    run_id = self._client.create_run(experiment, run_name=run_name).info.run_id
    fields = flatten(begin.config).items()
    params = [Param(name, str(value)) for name, value in fields]
    for first in range(0, len(params), MOST_PARAMS):
      some = params[first : first + MOST_PARAMS]
      self._client.log_batch(run_id, params=some)
    return run_id

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Send the numbers, unless those of this round are there already."""
    if step > self._last:  # MLflow would keep both
      self._send({**scalars(numbers), ROUND: step}, step, now)
      self._last = step

  def finish(self, result: Numbers | None) -> None:
    """Send the result, and end the run."""
    if result is not None:
      self._send(scalars(result), max(self._last, 0), time.time())
    status = 'KILLED' if result is None else 'FINISHED'
    self._client.set_terminated(self.id, status)

  def _send(self, numbers: dict[str, float], step: int, now: float) -> None:
    from mlflow.entities import Metric

    stamp = int(1000 * now)  # in milliseconds
    metrics = [Metric(name, n, stamp, step) for name, n in numbers.items()]
    self._client.log_batch(self.id, metrics=metrics)
