"""The one exception for input that a user can mend.

A message has four parts: what was got, what was expected, the choices, and
the likely cause. Commands print it and exit with status 1; no traceback.
"""

import difflib
import re
from collections.abc import Iterable

LONGEST = 800  # letters of what was got that are worth reading
LONGEST_WORD = 100  # letters of what may be a misspelt choice


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
  message = f'{name}: got {_shown(got)}, expected {expected}.'
  if choices is not None:
    words = [str(choice) for choice in choices]
    message += f' Choices: {", ".join(words) if words else "none"}'
    word = str(got)
    near = []
    if len(word) <= LONGEST_WORD:
      near = difflib.get_close_matches(word, words, n=1)
    message += f' (did you mean {near[0]}?).' if near else '.'
  return BadInput(f'{message} Likely cause: {cause}.')


def _shown(got: object) -> str:
  """Return the value in one line, without the middle of a very long one."""
  text = re.sub(r'\s*\n\s*', ' ', repr(got))  # arrays take several
  if len(text) <= LONGEST:
    return text
  return f'{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}'
