"""The database of results: every client of every evaluated view, in SQLite.

  trainings    what was trained, on which data, where, and what it cost
  evaluations  a way in which its last models were evaluated: result.json
  scores       a row for every view and client

It is derived from run directories, or from the databases of other machines: a
single file that can be copied. results_rows.py has its records. A transaction
is written whole or not at all.
"""

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Scores

NAME = 'results.sqlite'
PATIENCE = 60.0  # seconds to wait for another process that writes
# Columns of scores: the fields of Scores, but for the user's own metrics.
STORED = tuple(field for field in Scores._fields if field != 'own')
SCORED = tuple('test_count' if field == 'count' else field for field in STORED)
PROVENANCE = """
  path TEXT NOT NULL, version TEXT NOT NULL, "commit" TEXT NOT NULL,
  jax TEXT NOT NULL, devices TEXT NOT NULL, processor TEXT NOT NULL,
  finished REAL, seconds REAL"""
SCHEMA = (
  f"""CREATE TABLE trainings (
  key TEXT PRIMARY KEY, setting TEXT NOT NULL, start TEXT NOT NULL,
  model TEXT NOT NULL, settings TEXT NOT NULL, data TEXT NOT NULL,
  seed INTEGER, rounds INTEGER, images_per_second REAL,
  bytes_down INTEGER, bytes_up INTEGER,{PROVENANCE}
) STRICT""",
  f"""CREATE TABLE evaluations (
  id INTEGER PRIMARY KEY, training TEXT NOT NULL, evaluation TEXT NOT NULL,
  settings TEXT NOT NULL, data TEXT NOT NULL, result TEXT NOT NULL,
  {PROVENANCE}, UNIQUE (training, evaluation)
) STRICT""",
  f"""CREATE TABLE scores (
  evaluation INTEGER NOT NULL REFERENCES evaluations, view TEXT NOT NULL,
  client INTEGER NOT NULL, train_count INTEGER NOT NULL,
  {', '.join(f'{name} REAL' for name in SCORED)},
  PRIMARY KEY (evaluation, view, client)
) STRICT, WITHOUT ROWID""",
  # Digests of what was gathered already, and of the defaults behind the keys.
  'CREATE TABLE gathered (digest TEXT PRIMARY KEY) STRICT',
  'CREATE TABLE defaults (digest TEXT NOT NULL) STRICT',
  'CREATE INDEX by_setting ON trainings (setting)',
)


def locate(results: str | os.PathLike) -> pathlib.Path:
  """Return the database of a folder of results, or the path itself."""
  path = pathlib.Path(results)
  return path if path.suffix == '.sqlite' else path / NAME


def connect(path: pathlib.Path, *, write: bool) -> sqlite3.Connection:
  """Return a connection that opens no transaction by itself.

  With `write` the file is created where there is none. A file with other
  tables is refused.
  """
  if not write and not path.is_file():
    raise bad_input(
      'results',
      got=str(path),
      expected='a file of results',
      choices=sorted(map(str, path.parent.parent.glob(f'*/{path.name}'))),
      cause='a mistyped path, or no run was gathered yet',
    )
  with database_errors(path):
    if write:
      path.parent.mkdir(parents=True, exist_ok=True)
    # A reader may have to repair what a killed process left: 'rw'.
    uri = f'{path.resolve().as_uri()}?mode={"rwc" if write else "rw"}'
    connection = sqlite3.connect(
      uri, uri=True, timeout=PATIENCE, isolation_level=None
    )
    try:
      connection.execute('PRAGMA trusted_schema = OFF')
      if write:
        _make_tables(connection)
      _check(connection, path)
      connection.execute(f'PRAGMA query_only = {not write}')
    except BaseException:
      connection.close()
      raise
  return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
  """Write everything inside the block, or, where it raises, nothing."""
  connection.execute('BEGIN IMMEDIATE')  # waits for another writer, PATIENCE
  try:
    yield
  except BaseException:
    connection.execute('ROLLBACK')
    raise
  connection.execute('COMMIT')


@contextlib.contextmanager
def database_errors(path: pathlib.Path) -> Iterator[None]:
  """Raise errors of the file or the disk as `BadInput`."""
  try:
    yield
  except BadInput:
    raise
  except (sqlite3.OperationalError, OSError) as error:
    raise bad_input(
      'results',
      got=str(path),
      expected='a file that can be opened and written here',
      choices=['another --results'],
      cause=f'{error}: no permission, no space, or another program that '
      f'locked it for more than {PATIENCE:.0f} s',
    ) from error
  except sqlite3.DatabaseError as error:
    raise _damaged(path, error) from error


def _objects(connection: sqlite3.Connection) -> list[tuple]:
  return connection.execute(
    "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' "
    'ORDER BY name'
  ).fetchall()


def _make_tables(connection: sqlite3.Connection) -> None:
  with transaction(connection):  # two processes may start at once
    if not _objects(connection):
      for statement in SCHEMA:
        connection.execute(statement)


def _check(connection: sqlite3.Connection, path: pathlib.Path) -> None:
  """Refuse damage, and any table, view or trigger outside SCHEMA."""
  problem = connection.execute('PRAGMA quick_check(1)').fetchone()[0]
  if problem != 'ok':
    raise _damaged(path, problem)
  with contextlib.closing(sqlite3.connect(':memory:')) as expected:
    expected.executescript(';'.join(SCHEMA))
    if _objects(connection) == _objects(expected):
      return
  raise bad_input(
    'results',
    got=f'{path} with other tables',
    expected='the tables of this version',
    choices=['move it away: it is made again from the run directories'],
    cause='a file of another program, or of another version of this one',
  )


def _damaged(path: pathlib.Path, problem: object) -> Exception:
  return bad_input(
    'results',
    got=f'{path}, which is damaged',
    expected='an undamaged file of results',
    choices=['move it away: it is made again from the run directories'],
    cause=f'a copy that was cut short, or a full disk ({problem})',
  )
