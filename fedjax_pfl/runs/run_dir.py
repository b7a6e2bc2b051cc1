"""The run directory: everything that a run writes, and resumes from.

  config.json     the resolved config, and its provenance
  metrics.jsonl   one object a line: round, time, named numbers
  clients.npz     per client: ids, counts, and scores: client_scores.py
  scores/         per client: right answers in each evaluation: there, too
  result.json     status, summary of every view and of test_best; written last
  checkpoints/    checkpoint.py
  states/         of clients, with clients_placement=disk: state_files.py
  tb/             the metrics for TensorBoard: trackers.py
  tracker.json    the ids of the run at services, if it is sent there
  model/          model_file.py
  secret          of a private run that is not finished: secret.py
  PRIVATE.txt     of a private run: what is not for release

A run that was killed at any moment continues when it is opened again. Damaged
files are recognised: result.json and every checkpoint hold checksums.
"""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input, may_read
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.core.types import PyTree, Scores
from fedjax_pfl.runs import (
  checkpoint,
  client_scores,
  identity,
  lock,
  model_file,
  result_file,
  secret,
)
from fedjax_pfl.runs.client_scores import Clients, as_arrays, from_arrays
from fedjax_pfl.runs.result_file import CLIENTS, RESULT, existing, load_json
from fedjax_pfl.runs.trackers import NONE, Tracking, check_tracker

METRICS = 'metrics.jsonl'
MODEL = 'model/global.npz'  # the final global model, of most methods
NOTE = 'PRIVATE.txt'
OTHER = 'another --workdir'
# What no noise hides, and thus no epsilon covers.
NOT_FOR_RELEASE = """\
This folder is private, and not for release. No noise hides
  clients.npz     names, scores, number of examples and labels of each client
  result.json     accuracies and losses
  metrics.jsonl   losses, accuracies, numbers of steps; so has tb/
  scores/         right answers of each client
  checkpoints/    the states of all clients; so has states/
  secret          while the run is unfinished: who has it can remove the noise
To write the model that may be released, and nothing else:
  fedjax-pfl export --run=THIS_FOLDER --private --out=model.npz
"""


def open_run(
  workdir: str | os.PathLike,
  config: Mapping[str, Any],
  *,
  data: str,
  log: identity.Log = print,
  resumable: Collection[str] = (),
  defaults: Mapping[str, Any] | None = None,
  tracker: str = NONE,
  num_devices: int | None = None,
) -> 'Run':
  """Return the run in `workdir`, started now or to be continued.

  `data` is the fingerprint of the data. A directory of a run with another
  config or other data is refused, and not changed (`identity.is_started`);
  other versions and devices are only logged. Where another process writes it,
  it is refused, too: the lock is held until `Run.close`.
  """
  check_tracker(tracker)
  path, cause = Path(workdir), 'a variable of the shell that is not set'
  is_named = Rule(str.strip, 'the name of a directory', cause, [OTHER])
  is_named.check('workdir', str(workdir))
  now = identity.identify(config, data, num_devices)
  defaults, quiet = defaults or {}, lambda text: None
  try:
    path.mkdir(parents=True, exist_ok=True)
    identity.is_started(path, now, resumable, defaults, quiet)  # only refuses
    lock.acquire(path)
    try:
      if not identity.is_started(path, now, resumable, defaults, log):
        atomic_files.remove_temporary(path)
        atomic_files.write_json(path / identity.CONFIG, now)
    except BaseException:
      lock.release(path)
      raise
  except BadInput:
    raise
  except (OSError, ValueError) as error:  # ValueError: a name with a null byte
    raise bad_input(
      'workdir',
      got=str(path),
      expected='a directory that can be created and written',
      choices=[OTHER],
      cause=f'{getattr(error, "strerror", None) or error}'.lower(),
    ) from error
  return Run(path, log, Tracking(path, now['config'], tracker, log))


class Run:
  """A run directory that is open for writing; every write is atomic."""

  def __init__(self, path: Path, log: identity.Log, tracking: Tracking):
    self.path, self._checkpoints = path, path / 'checkpoints'
    self.scores = path / client_scores.FOLDER
    self._log, self._tracking = log, tracking
    self._mode = 0o666  # of files with the examples or the state of a client

  @may_read('workdir')
  def result(self) -> dict[str, Any] | None:
    """Return result.json; None if it, or its clients.npz, has to be written."""
    damaged = self.path / RESULT
    try:
      result, digests = result_file.parse(atomic_files.read_bytes(damaged))
      damaged = self.path / CLIENTS
      if atomic_files.sha256(damaged) == digests[CLIENTS]:
        return result
    except FileNotFoundError:
      return None
    except ValueError:
      pass
    self._log(f'{damaged} is damaged or missing and will be written again.')
    return None

  def secret(self, has_turns: bool) -> str:
    """Return the secret of a private run, in hexadecimal digits.

    Where clients take turns (`has_turns`), one that was lost is refused: other
    groups would be drawn, and clients take part more often than accounted.
    """
    if self.last_checkpoint() and not (self.path / secret.NAME).exists():
      if has_turns:
        raise secret.lost(self.path)
      self._log(f'{self.path} has lost its secret: noise from here on is new.')
    with atomic_files.writing(self.path):
      return secret.keep(self.path).hex()

  def write_note(self) -> None:
    """Write which files of a private run are not for release; protect some."""
    self._mode = secret.MODE
    with atomic_files.writing(self.path):
      atomic_files.write_bytes(self.path / NOTE, NOT_FOR_RELEASE.encode())

  def erase_secret(self) -> None:
    """Erase it: the run is finished. A run without one is not changed."""
    with atomic_files.writing(self.path):
      secret.erase(self.path)

  def log(self, **numbers: Any) -> None:
    """Append one line of metrics, before `save_checkpoint` of the same round.

    `resume` drops lines after the checkpoint, and cannot restore earlier ones.
    """
    assert 'round' in numbers and 'time' not in numbers, numbers
    now = time.time()
    numbers = atomic_files.plain(numbers)
    record = {'round': numbers.pop('round'), 'time': round(now, 3), **numbers}
    path = self.path / METRICS
    opener = atomic_files.open_in_place
    with atomic_files.writing(path), open(path, 'a', opener=opener) as stream:
      stream.write(json.dumps(record, allow_nan=False) + '\n')
      stream.flush()
      os.fsync(stream.fileno())  # no checkpoint is newer than its metrics
    self._tracking.log(record['round'], now, numbers)

  def save_checkpoint(
    self, step: int, tree: PyTree, keep: int = checkpoint.KEEP
  ) -> None:
    """Save the state after `step` rounds; the newest ones are kept."""
    with atomic_files.writing(self._checkpoints):
      before = _checksum(self.path / METRICS)
      before['scores'] = client_scores.digest(self.scores, step)
      checkpoint.save(
        self._checkpoints,
        step,
        tree,
        metadata=before,
        keep=keep,
        mode=self._mode,
      )

  def last_checkpoint(self) -> int | None:
    """Return the step of the newest checkpoint, None if there is none."""
    return max(checkpoint.steps(self._checkpoints), default=None)

  @may_read('workdir')
  def resume(
    self, like: PyTree | Callable[[int], PyTree]
  ) -> tuple[int, PyTree] | None:
    """Return the newest undamaged checkpoint; None if there is none yet.

    Metrics after it are removed, and what a killed process left half written.
    The run starts, or continues, at its tracker.
    """
    restored = checkpoint.restore(self._checkpoints, like, self._log)
    for folder in (self.path, self.path / 'model', self.scores):
      if folder.is_dir():
        atomic_files.remove_temporary(folder)
    path, last = self.path / METRICS, restored[0] if restored else -1
    if restored:
      before = checkpoint.read_metadata(self._checkpoints, last)
      scores = client_scores.digest(self.scores, last)
      if before.pop('scores', '') != scores:
        raise _changed('scores', self.scores, last, OTHER)
      if before and not path.exists():
        self._log(f'{path} is missing: continuing without the metrics before.')
      elif before and _checksum(path, before.get('bytes')) != before:
        more = 'delete it, to continue without these metrics'
        raise _changed('metrics', path, last, more)
    client_scores.cut(self.scores, last)
    if path.exists():
      _cut(path, last)
    self._tracking.start(last if path.exists() else None)
    return restored

  def write_scores(self, name: str, scores: Mapping[str, Scores]) -> None:
    """Write scores/NAME.npz: right answers; before the line of its round."""
    client_scores.write(self.scores, name, scores)

  def write_clients(self, clients: Clients) -> None:
    """Replace clients.npz."""
    arrays = as_arrays(clients)
    with atomic_files.writing(self.path):
      # Its result is of other scores: a process killed here is not finished.
      (self.path / RESULT).unlink(missing_ok=True)
      # Small, for it is committed with results: 7 kB for 100 clients.
      file = self.path / CLIENTS
      atomic_files.write_npz(file, arrays, compressed=True, mode=self._mode)

  def write_result(self, **result: Any) -> None:
    """Write result.json, with the `views` of `summarise`: it is finished."""
    content = {'status': 'finished', **result}
    content = result_file.with_checksums(content, self.path)
    with atomic_files.writing(self.path):
      atomic_files.write_json(self.path / RESULT, content)
    self._tracking.finish(atomic_files.plain(content))

  def model_path(self, name: str) -> Path:
    """Return the path of the model of this name: model/<name>.npz."""
    if not name or PurePath(name).name != name or '\\' in name:
      raise bad_input(
        'view',
        got=name,
        expected='a name that a file can have',
      )
    (self.path / 'model').mkdir(exist_ok=True)
    return self.path / 'model' / f'{name}.npz'

  def close(self) -> None:
    """Close the files and release the lock of the directory."""
    self._tracking.finish(None)
    lock.release(self.path)


def load_config(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return config.json: `config`, `data` and the provenance of the run."""
  return load_json(existing(workdir, identity.CONFIG), identity.parse)


def devices_of(workdir: str | os.PathLike) -> int | None:
  """Return on how many devices of a process a run began; None: unknown."""
  try:
    return load_config(workdir).get('num_devices')
  except BadInput:
    return None  # what is damaged is refused later


def load_result(workdir: str | os.PathLike) -> dict[str, Any]:
  """Return result.json of a finished run."""
  return result_file.read(workdir)[0]


def is_finished(workdir: str | os.PathLike) -> bool:
  """Return whether the run has a result.json; refuse a damaged one."""
  with may_read('run'):
    has_result = (Path(workdir) / RESULT).is_file()
  return has_result and bool(load_result(workdir))


def model_digest(workdir: str | os.PathLike) -> str:
  """Return the digest of the final global model of a run; '' without one.

  A copy of a run without model/ has it in result.json. Of a file its own.
  """
  path = Path(workdir)
  for file in (path, path / MODEL):
    if file.is_file():
      return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
  if (path / RESULT).is_file():
    with contextlib.suppress(BadInput):  # damaged: written again, from scratch
      return load_result(path).get('model', '')
  return ''


def load_global_model(
  workdir: str | os.PathLike,
) -> tuple[PyTree, dict[str, Any], str]:
  """Return the global model of a finished run, about it, and about its data."""
  load_result(workdir)  # refuses a run that is not finished
  path = Path(workdir) / MODEL
  if not path.is_file():
    raise bad_input(
      'init_from',
      got=str(workdir),
      expected=f'a run with a global model, {MODEL}',
    )
  params, about = model_file.load_model(path)
  return params, about, load_config(workdir)['data']


def load_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
  """Return the lines of metrics.jsonl; a torn last line is left out."""
  path = existing(workdir, METRICS)
  with may_read('run'):
    lines = [numbers for _, numbers in _lines(path)]
  known = [*filter(None, lines)]
  if known not in (lines, lines[:-1] or None):
    last = max((numbers['round'] for numbers in known), default=0)
    raise _changed('metrics', path, last)
  return known


def load_clients(workdir: str | os.PathLike) -> Clients:
  """Return the scores of every client at the last evaluation."""
  path = existing(workdir, CLIENTS)
  return from_arrays(atomic_files.read_npz(path), path)


# ---- metrics.jsonl: lines that a resume cuts off, and their checksum ---------


def _cut(path: Path, last: int) -> None:
  """Remove the lines after a round, and a torn last line."""
  lines = [*_lines(path)]
  earlier = [
    line for line, numbers in lines if numbers and numbers['round'] <= last
  ]
  if len(earlier) < len(lines):
    with atomic_files.writing(path):
      atomic_files.write_bytes(path, b''.join(earlier))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
  """Yield the lines of metrics with their numbers; {} of a torn one."""
  for line in atomic_files.read_bytes(path).splitlines(keepends=True):
    numbers = {}
    with contextlib.suppress(ValueError):
      numbers = atomic_files.parse_object(line)
    at = numbers.get('round')
    has_round = isinstance(at, int | float) and at < math.inf
    yield line, numbers if line.endswith(b'\n') and has_round else {}


def _checksum(path: Path, size: Any = None) -> dict[str, Any]:
  """Return length and checksum of a file, or its first bytes; {} of none."""
  if not path.exists():
    return {}
  content = atomic_files.read_bytes(path)
  head = content[: size if isinstance(size, int) else None]
  return {'bytes': len(head), 'sha256': hashlib.sha256(head).hexdigest()}


def _changed(name: str, path: Path, step: int, *more: str) -> BadInput:
  """Return the error that this changed after a checkpoint was saved."""
  return bad_input(
    name,
    got=f'{path}, which was changed or cut short before round {step}',
    expected='what was there when that round was saved',
    choices=['put back a copy of it', *more],
  )
