"""From a play to sequences of characters: a client is a role.

  ROMEO:
  But, soft! what light through yonder window breaks?

A speech is a line with its role and a colon, then its lines; an empty line is
between speeches. All speeches of a role are one text, in the order of the play,
of which 80 characters and then 80 characters are an example, labelled with the
next ones. The first 80 % of a role's examples are for training, the last for
testing, as LEAF divides them in time. Roles with fewer than 800 characters are
left out: of the tiny Shakespeare 156 of 309 stay. A role is known by its name
alone, so that the First Citizens of two plays are one.

Symbols have the numbers of `string.printable`, the 100 that SuPerFed's model
has. What follows a role's last character is a 0 without a label.
"""

import functools
import pathlib
import re
import string

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.images import Images, Owned, joined
from fedjax_pfl.data.prepared import PREPARED

SYMBOLS = string.printable
LENGTH = PREPARED['shakespeare'].image_shape[0]
LEAST = 800  # characters of a role
TRAIN_SHARE = 0.8
NONE = -1  # the label of what has none
OTHER = SYMBOLS.index('\x0b')  # a vertical tab, for a symbol outside of ASCII
# The number of a code point, or -1; the last one is of all from 128 on.
_NUMBERS = np.full(129, -1, np.int32)
_NUMBERS[[ord(symbol) for symbol in SYMBOLS]] = np.arange(len(SYMBOLS))
refuse = functools.partial(
  bad_input,
  'text',
  expected='speeches with an empty line between them: a line ROLE: and what '
  'it says, in the symbols of ASCII',
)


def read_play(files: list[pathlib.Path]) -> Owned:
  """Return (train, test, who holds their examples) of the file of a play."""
  (file,) = files
  try:
    content = file.read_text(encoding='utf-8-sig')
  except (OSError, UnicodeDecodeError) as error:
    cause = 'another path, or a file that is no text'
    raise refuse(got=f'{file}: {error}', cause=cause) from error
  roles: dict[str, str] = {}
  for speech in filter(None, re.split(r'\n(?:[ \t]*\n)+', content.strip())):
    role, _, said = speech.partition('\n')
    if not role.endswith(':'):
      raise refuse(
        got=f'{file} with a speech of no role: {role[:40]!r}',
        cause='an empty line within a speech, or another layout',
      )
    roles[role] = roles.get(role, '') + said + '\n'
  texts = [said for said in roles.values() if len(said) >= LEAST]
  if not texts:
    longest = max(map(len, roles.values()), default=0)
    raise refuse(
      got=f'{file}, whose longest role has {longest} characters',
      cause=f'a play that is too short: a role needs {LEAST}',
    )
  return owned([sequences(encode(text, str(file))) for text in texts])


def encode(text: str, source: str) -> np.ndarray:
  """Return the numbers of the symbols of a text; refuse an unknown one."""
  numbers = known_or_none(text)
  if (numbers < 0).any():
    symbol = text[int(np.argmax(numbers < 0))]
    raise refuse(
      got=f'{source} with the symbol {symbol!r}',
      cause="curly quotes or accents: replace them by ASCII's",
    )
  return numbers


def known_or_none(text: str) -> np.ndarray:
  """Return the numbers of symbols, -1 of an unknown one."""
  points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), '<u4')
  return _NUMBERS[np.minimum(points, len(_NUMBERS) - 1)]


def sequences(text: np.ndarray) -> Images:
  """Return x and y [n, LENGTH] of a text, in its order."""
  number = -(-(len(text) - 1) // LENGTH)
  x = np.zeros((number, LENGTH), np.int32)
  y = np.full_like(x, NONE)
  x.ravel()[: len(text) - 1] = text[:-1]
  y.ravel()[: len(text) - 1] = text[1:]
  return Images(x, y)


def owned(clients: list[Images]) -> Owned:
  """Return the examples of all clients, each divided in time."""
  # Who has one example trains on it: a client needs no test.
  cuts = [max(1, int(TRAIN_SHARE * len(client.y))) for client in clients]
  pairs = [*zip(clients, cuts, strict=True)]
  train = [Images(x[:cut], y[:cut]) for (x, y), cut in pairs]
  return joined(train, [Images(x[cut:], y[cut:]) for (x, y), cut in pairs])
