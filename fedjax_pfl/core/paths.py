"""Paths that a user writes: ~ for the home directory, what may be read."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from fedjax_pfl.core.errors import bad_input


def expand_home(field: str, place: str | os.PathLike) -> pathlib.Path:
  """Return the path with ~ and ~name replaced; `field` is what it is of.

  >>> expand_home('data_dir', '~/data')
  PosixPath('/users/ada/data')
  """
  path = pathlib.Path(place)
  try:
    return path.expanduser()
  except RuntimeError as error:
    raise bad_input(
      field,
      got=str(place),
      expected=f'{path.parts[0]} to be the home directory of a user of this '
      'machine',
      choices=['the whole path', f'./{path}, a folder of that name'],
      cause='a name of another machine, or an account without a home, as in '
      'many containers ($HOME is not set)',
    ) from error


@contextlib.contextmanager
def may_read(field: str) -> Iterator[None]:
  """Raise BadInput of `field` where this account may not read; a decorator."""
  try:
    yield
  except PermissionError as error:
    raise bad_input(
      field,
      got=f'{error.filename}, which this account may not read',
      expected='files that it may read, in folders that it may open',
      choices=['chmod -R a+rX, by their owner'],
      cause='files of another account, or a path into its home directory',
    ) from error
