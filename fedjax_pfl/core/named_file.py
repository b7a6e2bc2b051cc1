"""A file that a config names: 'FILE#4f0c8e21ab37', with digits of its content.

Names of code have them, too (user_code.py). So a run knows its file again.
"""

import pathlib
import re

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import expand_home


def with_digest(name: str) -> str:
  """Return the name with its digest; without one if there is no such file."""
  try:
    digest = atomic_files.sha256(pathlib.Path(name).expanduser())
  except (RuntimeError, ValueError):  # no name of a file
    return name
  # Without a digest there is no such file, or its name has the digest.
  return f'{name}#{digest[:12]}' if digest else name


def read(field: str, name: str) -> tuple[str, str]:
  """Return the name without its digest, and the text.

  Raises OSError or ValueError where there is none, or another one.
  """
  file, digest = re.fullmatch(
    '(.*?)(?:#([0-9a-f]{12}))?', name, re.DOTALL
  ).groups()
  path = expand_home(field, file)
  text = path.read_text()
  if digest and not atomic_files.sha256(path).startswith(digest):
    raise ValueError(f'other content than {digest}, that of the run')
  return file, text
