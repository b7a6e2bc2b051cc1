"""LEAF's JSON files: FEMNIST, Shakespeare and Sent140, as its scripts write.

  {"users": [u, ..], "num_samples": [n, ..],
   "user_data": {u: {"x": [..], "y": [..]}, ..}}

in files all_data*.json: of a folder with `train` and `test`, as LEAF divides
the examples of a user; or in one folder, where the last 20 % of a user's
examples are for testing. Users are numbered in the order of the files.

  femnist      x 784 numbers, from 0 (ink) to 1, become bytes; y a class
  shakespeare  x 80 characters, y the next one: the last character alone has a
               label, as LEAF counts
  sent140      x a tweet, or LEAF's row whose fifth entry it is; y 0 or 1 is the
               label of its last character

Differs from LEAF: a tweet is read by characters, not by words; the first 140
count, and those outside of ASCII are one symbol.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.images import SPLITS, Images, Owned, joined
from fedjax_pfl.data.preparation import texts
from fedjax_pfl.data.prepared import PREPARED


def read_leaf(name: str, folder: pathlib.Path) -> Owned:
  """Return (train, test, who holds their examples) of a folder of LEAF's."""
  if not (folder / 'train').is_dir():
    return texts.owned([*_read_users(name, folder).values()])
  train, test = (_read_users(name, folder / split) for split in SPLITS)
  if lone := sorted({*train} ^ {*test}):
    raise _refusal(
      f'{folder} with the user {lone[0]} in one of train and test',
      'a division by users (-t user): LEAF\'s "-t sample" divides examples',
    )
  return joined([*train.values()], [test[user] for user in train])


def _read_users(name: str, folder: pathlib.Path) -> dict[str, Images]:
  """Return the examples of every user in the files of a folder."""
  listing = sorted(folder.glob('all_data*.json'))
  files, users = [file for file in listing if file.is_file()], {}
  if not files:
    raise _refusal(
      f'{folder}, which has no all_data*.json',
      "the folder above that of the files; or LEAF's preprocess.sh was not run",
    )
  for file in files:
    try:
      content = atomic_files.parse_object(file.read_bytes())
      data, names = dict(content['user_data']), map(str, content['users'])
      listed = [*zip(names, content['num_samples'], strict=True)]
    except (OSError, ValueError, KeyError, TypeError) as error:
      raise _refusal(
        f'{file}: {error!r}', 'a copy that was cut short, or edited'
      ) from error
    for user, size in listed:
      if user not in data or user in users:
        twice, none = 'who was listed before', 'of whom it has no data'
        what = twice if user in data else none
        cause = 'files of two runs of preprocess.sh in one folder or file'
        raise _refusal(f'{file} with the user {user}, {what}', cause)
      users[user] = _read_user(name, data[user], size, f'{file}, user {user}')
    if lone := sorted({*data} - {user for user, _ in listed}):
      got = f'{file} with data of the user {lone[0]}, who is not listed'
      raise _refusal(got, 'a list of users that was edited')
  if not users:
    cause = "too large a number of examples for -k of LEAF's preprocess.sh"
    raise _refusal(f'{folder}, whose files list no user', cause)
  return users


def _read_user(name: str, data: Any, size: int, source: str) -> Images:
  """Return the examples of one user, checked."""
  try:
    x, y = data['x'], data['y']
    pairs = [READERS[name](*pair) for pair in zip(x, y, strict=True)]
    shape = PREPARED[name].image_shape
    images = Images(
      np.array([x for x, _ in pairs]).reshape(len(pairs), *shape),
      np.array([y for _, y in pairs], np.int32),
    )
    if len(pairs) == size and size:
      return images
    raise ValueError(f'{len(pairs)} examples, by num_samples {size}')
  except (LookupError, AttributeError, TypeError, ValueError) as error:
    cause = f'files of another set than {name}'
    raise _refusal(f'{source}: {error!r}', cause) from error


def _character(x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
  numbers, label = map(texts.known_or_none, (x, y))
  if min(numbers.min(), label.min()) < 0:
    raise ValueError('a symbol outside of ASCII')
  return numbers, _last_of(label.item(), len(x), len(x))


def _tweet(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
  (length,) = PREPARED['sent140'].image_shape
  text = texts.known_or_none((x if isinstance(x, str) else x[4])[:length])
  padded = np.zeros(length, np.int32)
  padded[: len(text)] = np.where(text < 0, texts.OTHER, text)
  return padded, _last_of(_label('sent140', y), max(len(text), 1), length)


def _last_of(label: int, number: int, length: int) -> np.ndarray:
  """Return labels of which that of the `number`-th alone is known."""
  labels = np.full(length, texts.NONE, np.int32)
  labels[number - 1] = label
  return labels


def _drawing(x: list[float], y: Any) -> tuple[np.ndarray, int]:
  pixels = np.asarray(x)
  if pixels.dtype.kind not in 'iuf':
    raise ValueError('pixels that are no numbers')
  pixels = np.rint(255 * pixels.astype(float))
  if not (pixels >= 0).all() or not (pixels <= 255).all():
    raise ValueError('pixels outside of [0, 1]')
  return pixels.astype(np.uint8), _label('femnist', y)


def _label(name: str, y: Any) -> int:
  """Return a class; int() would take 3.7, '3' and True, too."""
  most = PREPARED[name].num_classes - 1
  is_number = isinstance(y, int | float) and not isinstance(y, bool)
  if not is_number or y not in range(most + 1):
    raise ValueError(f'the label {y!r} is no whole number from 0 to {most}')
  return int(y)


READERS: dict[str, Callable] = {
  'femnist': _drawing,
  'shakespeare': _character,
  'sent140': _tweet,
}


def _refusal(got: str, cause: str) -> BadInput:
  return bad_input(
    'leaf',
    got=got,
    expected="LEAF's files: users, num_samples, and user_data with x and y of "
    'every user',
    cause=cause,
  )
