"""The one exception for input that a user can mend.

A message has four parts: what was got, what was expected, the choices, and
the likely cause. Commands print it and exit with status 1; no traceback.
"""

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
  """A setting, a file or an array that its user can mend; never our bug."""


def bad_input(
  name: str,
  *,
  got: object,
  expected: str,
  choices: Iterable[object] | None = None,
  cause: str,
) -> BadInput:
  """Return the exception to raise; the nearest choice is named first.

  >>> print(bad_input('model', got='resnet9', expected='a known model',
  ...                 choices=['resnet10', 'convnet4'], cause='a typo'))
  model: got 'resnet9', expected a known model. Choices: resnet10, convnet4 \
(did you mean resnet10?). Likely cause: a typo.
  """
  message = f'{name}: got {got!r}, expected {expected}.'
  if choices is not None:
    words = [str(choice) for choice in choices]
    message += f' Choices: {", ".join(words) if words else "none"}'
    near = difflib.get_close_matches(str(got), words, n=1)
    message += f' (did you mean {near[0]}?).' if near else '.'
  return BadInput(f'{message} Likely cause: {cause}.')
