"""The run directory: everything that a run writes, and resumes from.

  config.json     the resolved config, and its provenance
  metrics.jsonl   one object a line: round, time, named numbers
  clients.npz     per client: ids, counts, and scores: client_scores.py
  result.json     status, summary of every view and of test_best; written last
  checkpoints/    checkpoint.py
  tb/             the metrics for TensorBoard: trackers/
  tracker.json    the ids of the run at wandb and mlflow, if it is sent there
  model/          model_file.py

A run that was killed at any moment continues when it is opened again. Damaged
files are recognised: result.json and every checkpoint hold checksums.
"""

import difflib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import PyTree, Scores
from fedjax_pfl.runs import checkpoint, checksums, identity, lock
from fedjax_pfl.runs.client_scores import Clients, as_arrays, from_arrays
from fedjax_pfl.runs.trackers.tracker import NONE, check_installed
from fedjax_pfl.runs.trackers.tracking import Tracking

METRICS = 'metrics.jsonl'
CLIENTS = 'clients.npz'
RESULT = 'result.json'
MAX_CHOICES = 20  # run directories that a message names


def open_run(
  workdir: str | os.PathLike,
  config: Mapping[str, Any],
  *,
  data: str,
  log: Callable[[str], None] = print,
  resumable: Collection[str] = (),
  defaults: Mapping[str, Any] | None = None,
  tracker: str = NONE,
  num_devices: int | None = None,
) -> 'Run':
  """Return the run in `workdir`, started now or to be continued.

  `data` is the fingerprint of the data. A directory of a run with another
  config or other data is refused, and not changed; fields that are `resumable`
  may differ, and other versions and devices are only logged. Fields that the
  stored config does not have, because they are younger, count as `defaults`.
  The numbers are sent to `tracker`, too. `num_devices` train the clients.
  """
  check_installed(tracker)
  path = pathlib.Path(workdir)
  identity.open_directory(
    path, config, data, log, resumable, defaults, num_devices
  )
  plain = atomic_files.plain(config, nonfinite=str)
  return Run(path, log, Tracking(path, plain, tracker, log))


class Run:
  """A run directory that is open for writing; every write is atomic."""

  def __init__(
    self, path: pathlib.Path, log: Callable[[str], None], tracking: Tracking
  ):
    self.path = path
    self._log = log
    self._tracking = tracking
    self._is_closed = False

  def status(self) -> str:
    """Return 'finished', 'started' (there is a checkpoint) or 'new'."""
    result = self.result()
    if result is not None and result.get('status') == 'finished':
      return 'finished'
    return 'started' if checkpoint.steps(self._checkpoints) else 'new'

  def result(self) -> dict[str, Any] | None:
    """Return result.json; None if it, or its clients.npz, is damaged.

    Both are derived: the run writes them again at its end.
    """
    path = self.path / RESULT
    try:
      result, digests = checksums.read_result(path, CLIENTS)
    except FileNotFoundError:
      return None
    except ValueError:
      self._log(f'{path} is damaged and will be written again.')
      return None
    if atomic_files.sha256(self.path / CLIENTS) != digests[CLIENTS]:
      self._log(
        f'{self.path / CLIENTS} is damaged or missing and will be written '
        'again.'
      )
      return None
    return result

  def log(self, **numbers: Any) -> None:
    """Append one line of metrics: `log(round=8, loss=1.2)`.

    Log before `save_checkpoint` of the same round: `resume` drops lines after
    the checkpoint, and cannot restore earlier ones. NaN and infinity become
    null.
    """
    assert 'round' in numbers and 'time' not in numbers, numbers
    now = time.time()
    numbers = atomic_files.plain(numbers)
    record = {'round': numbers.pop('round'), 'time': round(now, 3), **numbers}
    path = self.path / METRICS
    with (
      atomic_files.writing(path),
      open(path, 'a', encoding='utf-8') as stream,
    ):
      stream.write(json.dumps(record, allow_nan=False) + '\n')
      stream.flush()
      os.fsync(stream.fileno())  # no checkpoint is newer than its metrics
    self._tracking.log(record['round'], now, numbers)

  def save_checkpoint(self, step: int, tree: PyTree) -> None:
    """Save the state after `step` rounds; the newest two are kept."""
    with atomic_files.writing(self._checkpoints):
      metrics = checksums.checksum_of(self.path / METRICS)
      checkpoint.save(self._checkpoints, step, tree, metadata=metrics)

  def has_checkpoint(self, step: int) -> bool:
    """Return whether a checkpoint of this step was saved."""
    return step in checkpoint.steps(self._checkpoints)

  def last_checkpoint(self) -> int | None:
    """Return the step of the newest checkpoint, None if there is none."""
    return max(checkpoint.steps(self._checkpoints), default=None)

  def restore_checkpoint(
    self, like: PyTree | Callable[[int], PyTree]
  ) -> tuple[int, PyTree] | None:
    """Return the newest undamaged checkpoint; None if there is none yet."""
    return checkpoint.restore(self._checkpoints, like, self._log)

  def resume(
    self, like: PyTree | Callable[[int], PyTree]
  ) -> tuple[int, PyTree] | None:
    """Return `restore_checkpoint(like)`, without the metrics after it.

    A torn last line goes, too. The run starts, or continues, at its tracker.
    """
    restored = self.restore_checkpoint(like)
    path, last = self.path / METRICS, -1
    if restored:
      last = restored[0]
      checksum = checkpoint.read_metadata(self._checkpoints, last)
      checksums.check_metrics(path, checksum, last, self._log)
    if path.exists():
      lines = path.read_bytes().splitlines(keepends=True)
      earlier = [line for line in lines if _round_of(line) <= last]
      if earlier != lines:
        with atomic_files.writing(path):
          atomic_files.write_bytes(path, b''.join(earlier))
      self._tracking.rewind(last)
    self._tracking.start()
    return restored

  def write_clients(
    self,
    scores: Mapping[str, Scores],
    ids: Any,
    *,
    train_count: Any,
    train_classes: Any = None,
    test_classes: Any = None,
    unseen: Clients | None = None,
    validation: Scores | None = None,
  ) -> None:
    """Replace clients.npz by the scores of the last evaluation.

    `train_classes` and `test_classes` [K, Y] count the examples of the clients;
    `validation` are the scores on examples that are kept for choosing. Arrays
    of clients who came after training are called unseen/...
    """
    classes = train_classes, test_classes
    arrays = as_arrays(
      Clients(ids, train_count, scores, *classes, unseen, validation)
    )
    with atomic_files.writing(self.path):
      # Its result is of other scores: a process killed here is not finished.
      (self.path / RESULT).unlink(missing_ok=True)
      # Small, for it is committed with results: 7 kB for 100 clients.
      atomic_files.write_npz(self.path / CLIENTS, arrays, compressed=True)

  def write_result(
    self,
    *,
    algorithm: str,
    dataset: str,
    rounds: int,
    seconds: float,
    views: Mapping[str, Mapping[str, Any]],
    status: str = 'finished',
    **more: Any,
  ) -> None:
    """Write result.json; with status 'finished' the run is finished.

    `views` maps every view to its `summarise`.
    """
    result = {'status': status, 'algorithm': algorithm, 'dataset': dataset}
    result |= {'rounds': rounds, 'seconds': seconds, 'views': views, **more}
    result = checksums.with_checksums(result, self.path / CLIENTS)
    with atomic_files.writing(self.path):
      atomic_files.write_json(self.path / RESULT, result)
    self._tracking.finish(atomic_files.plain(result))

  def model_path(self, name: str) -> pathlib.Path:
    """Return the path of the model of this name: model/<name>.npz."""
    if not name or pathlib.PurePath(name).name != name or '\\' in name:
      raise bad_input(
        'view',
        got=name,
        expected='a name that a file can have',
        cause='a method whose view has a slash in its name',
      )
    (self.path / 'model').mkdir(exist_ok=True)
    return self.path / 'model' / f'{name}.npz'

  def close(self) -> None:
    """Close the files and release the lock of the directory."""
    if self._is_closed:
      return
    self._is_closed = True
    self._tracking.finish(None)
    lock.release(self.path)

  @property
  def _checkpoints(self) -> pathlib.Path:
    return self.path / 'checkpoints'


def load_config(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return config.json: `config`, `data` and the provenance of the run."""
  return load_json(_existing(workdir, identity.CONFIG))


def devices_of(workdir: str | os.PathLike) -> int | None:
  """Return on how many devices of a process a run was started; None: none was.

  Earlier runs used one device of a CPU, if their config did not say more.
  """
  try:
    stored = load_config(workdir)
    return stored.get('num_devices') or stored['config']['devices'] or 1
  except (BadInput, LookupError, TypeError):  # what is damaged is refused later
    return None


def load_result(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return result.json of a finished run."""
  return _read_result(workdir)[0]


def is_finished(workdir: str | os.PathLike) -> bool:
  """Return whether the status in result.json is finished."""
  if not (pathlib.Path(workdir) / RESULT).is_file():
    return False
  return load_result(workdir).get('status') == 'finished'


def check_clients(workdir: str | os.PathLike) -> None:
  """Refuse a finished run whose clients.npz is not as the run wrote it."""
  path = pathlib.Path(workdir)
  digests = _read_result(workdir)[1]
  if atomic_files.sha256(path / CLIENTS) == digests[CLIENTS]:
    return
  raise bad_input(
    'file',
    got=f'{path / CLIENTS}, which is missing or not as the run wrote it',
    expected=f'the file with the checksum in {RESULT}',
    choices=[
      'put back a copy of it',
      f'delete {RESULT} of this run: the same command ends it again, from its '
      'last checkpoint if that is there',
    ],
    cause='a full disk, a damaged one, or a file edited by hand',
  )


def load_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
  """Return the lines of metrics.jsonl; a torn last line is left out."""
  path = _existing(workdir, METRICS)
  lines = path.read_bytes().splitlines(keepends=True)
  return [json.loads(line) for line in lines if _round_of(line) < math.inf]


def load_clients(workdir: str | os.PathLike) -> Clients:
  """Return the scores of every client at the last evaluation."""
  path = _existing(workdir, CLIENTS)
  return from_arrays(atomic_files.read_npz(path), path)


def _read_result(
  workdir: str | os.PathLike,
) -> tuple[dict[str, Any], dict[str, str]]:
  path = _existing(workdir, RESULT)
  try:
    return checksums.read_result(path, CLIENTS)
  except ValueError as error:
    raise _damaged_json(path) from error


def _round_of(line: bytes) -> float:
  """Return the round of a line of metrics; infinity if the line is torn."""
  try:
    return json.loads(line)['round'] if line.endswith(b'\n') else math.inf
  except (ValueError, TypeError, KeyError):
    return math.inf


def _existing(workdir: str | os.PathLike, name: str) -> pathlib.Path:
  path = pathlib.Path(workdir) / name
  if path.is_file():
    return path
  # Run directories beside this one: a sweep has hundreds.
  beside = [str(file.parent) for file in path.parent.parent.glob(f'*/{name}')]
  meant = str(path.parent)
  near = difflib.get_close_matches(meant, beside, n=MAX_CHOICES, cutoff=0)
  raise bad_input(
    'run',
    got=str(workdir),
    expected=f'a run directory that holds {name}',
    choices=sorted(near),
    cause='a mistyped path, or a run that has not got that far',
  )


def load_json(path: pathlib.Path) -> dict[str, Any]:
  """Return the content of a JSON file; refuse one that is damaged."""
  try:
    return json.loads(path.read_bytes())
  except ValueError as error:
    raise _damaged_json(path) from error


def _damaged_json(path: pathlib.Path) -> Exception:
  return bad_input(
    'file',
    got=str(path),
    expected='valid JSON, as it was written',
    cause='it was cut short or edited by hand',
  )
