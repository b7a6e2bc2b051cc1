"""Paths that a user writes, with ~ for the home directory."""

import os
import pathlib

from fedjax_pfl.core.errors import bad_input


def expand_home(field: str, place: str | os.PathLike) -> pathlib.Path:
  """Return the path with ~ and ~name replaced; `field` is what it is of.

  >>> expand_home('data_dir', '~/data')
  PosixPath('/home/ada/data')
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
