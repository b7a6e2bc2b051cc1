"""BadInput: the exception for input that a user can correct.

Commands print its message and exit with status 1, without a traceback.
"""

import contextlib
import difflib
import importlib.util
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

from fedjax_pfl.core.commands import pip_line

MAX_SHOWN = 800  # characters of a value that a message shows
MAX_WORD = 100  # characters of a value that may be a misspelt choice


class BadInput(ValueError):
  """A setting, a file or an array that the user can correct; never a bug.

  >>> try:
  ...   pfl.make_task('resnet9', image_shape=(32, 32, 3), num_classes=10)
  ... except pfl.BadInput as error:
  ...   print(str(error)[:44])
  model: got 'resnet9', expected a known model
  """


def bad_input(
  name: str,
  *,
  got: object,
  expected: str,
  choices: Iterable[object] | None = None,
  cause: str = '',
) -> BadInput:
  """Return the exception to raise; it asks for the nearest of the choices.

  >>> print(bad_input('model', got='resnet9', expected='a known model',
  ...                 choices=['resnet10', 'convnet4']))
  model: got 'resnet9', expected a known model. Choices: resnet10, convnet4 \
(did you mean resnet10?).
  """
  message = f'{name}: got {_shown(got)}, expected {expected}.'
  if choices is not None:
    names = [str(choice) for choice in choices]
    message += f' Choices: {", ".join(names) if names else "none"}'
    near = nearest(str(got), names, 1)
    message += f' (did you mean {near[0]}?).' if near else '.'
  return BadInput(f'{message} Likely cause: {cause}.' if cause else message)


def refuse(*rows: tuple) -> None:
  """Refuse the first wrong row: (is_wrong, field, got, expected, *choices)."""
  for is_wrong, field, got, expected, *choices in rows:
    if is_wrong:
      choices = choices or None
      raise bad_input(field, got=got, expected=expected, choices=choices)


def nearest(word: str, choices: Iterable[str], number: int) -> list[str]:
  """Return up to `number` choices that resemble a word, the nearest first."""
  if len(word) > MAX_WORD:
    return []
  by_lower = {choice.lower(): choice for choice in choices}
  near = difflib.get_close_matches(word.lower(), by_lower, n=number)
  return [by_lower[lower] for lower in near]


def expand_home(field: str, name: str | os.PathLike) -> pathlib.Path:
  """Return a path, the value of a field, with ~ and ~user replaced."""
  path = pathlib.Path(name)
  try:
    return path.expanduser()
  except RuntimeError as error:
    raise bad_input(
      field,
      got=str(name),
      expected=f'{path.parts[0]} to be the home directory of a user of this '
      'machine',
      choices=['the whole path', f'./{path}, a folder of that name'],
    ) from error


@contextlib.contextmanager
def may_read(field: str) -> Iterator[None]:
  """Raise BadInput of `field` where a file cannot be read; a decorator."""
  try:
    yield
  except OSError as error:
    got, cause = 'which cannot be read', f'{error.strerror or error}'.lower()
    if isinstance(error, PermissionError):
      got = 'which this account may not read'
      cause = 'files of another account, or a path into its home directory'
    raise bad_input(
      field,
      got=f'{error.filename}, {got}',
      expected='files that it may read, in folders that it may open',
      choices=['another path', 'chmod -R a+rX, by their owner'],
      cause=cause,
    ) from error


def check_installed(
  field: str, package: str, choices: Iterable[str] | None = None
) -> None:
  """Refuse the value of a field that needs a package which is absent."""
  spec = importlib.util.find_spec(package)
  # A folder of this name, such as wandb's own, would be found without origin.
  if spec is None or spec.origin is None:
    raise bad_input(
      field,
      got=f'{package}, which is not installed here',
      expected=f'the package {package}: {pip_line(package)}',
      choices=choices,
    )


def _shown(got: object) -> str:
  """Return the value in one line; of a long one, begin and end."""
  text = re.sub(r'\s*\n\s*', ' ', repr(got))  # arrays take several
  if len(text) <= MAX_SHOWN:
    return text
  return f'{text[: MAX_SHOWN // 2]} ... {text[-MAX_SHOWN // 4 :]}'
