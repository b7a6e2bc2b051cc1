"""Golden cases: find them, read their settings, compare with their arrays.

A case is <case>.json (settings, tolerance) beside <case>.npz (arrays), or
beside <case>.npz.xz. Large arrays are stored as digests: `name@every{k}` holds
every k-th element (k a prime), `name@stats` three sums. Arrays may be rounded,
to about a hundredth of the tolerance, which the comparison takes off it.
"""

import functools
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from flax import traverse_util


class Case:
  """One case; remembers which of its arrays were compared, or read."""

  def __init__(self, path: Path):
    self.path = path
    self.settings = read_settings(path)
    self.arrays = read_arrays(path.with_suffix('.npz'))
    self.digests: dict[str, list[str]] = {}  # array -> what is stored of it
    for key in self.arrays:
      self.digests.setdefault(key.partition('@')[0], []).append(key)
    self.seen = {'train_mask', 'test_mask', 'train_y'}
    narrow = self.get('model', '').startswith('narrow_simple_cnn')
    self.head = 'fc3' if narrow else 'head'  # what the files call it

  def __getitem__(self, key: str) -> Any:
    return self.settings[key]

  def get(self, key: str, default: Any = None) -> Any:
    return self.settings.get(key, default)

  def load(self, file: str) -> dict[str, np.ndarray]:
    """Return the arrays of another file of the same folder."""
    return read_arrays(self.path.parent / file)

  def given(self, *names: str) -> list[np.ndarray]:
    """Return arrays that are inputs: nothing has to be compared with them."""
    self.seen |= {*names}
    return [self.arrays[name] for name in names]

  def check(self, name: str, got: Any, exact: bool = False) -> None:
    """Compare with all that is stored of an array, or of a tree of arrays.

    What is not stored is passed over; `finish` tells what nothing was compared
    with.
    """
    if isinstance(got, dict):
      for path, leaf in traverse_util.flatten_dict(got, sep='/').items():
        outer, slash, inner = path.partition('/')
        outer = self.head if outer == 'head' else outer
        self.check(f'{name}/{outer}{slash}{inner}', leaf, exact)
      return
    for key in self.digests.get(name, ()) if got is not None else ():
      rtol, atol = (0, 0) if exact else self.tolerance(key)
      np.testing.assert_allclose(
        digest(key, np.asarray(got)),
        self.arrays[key],
        rtol=rtol,
        atol=atol,
        err_msg=key,
      )
      self.seen.add(key)

  def subtree(self, prefix: str, arrays=None) -> dict[str, Any]:
    """Return the arrays prefix/<path> as a nested dict with a `head`.

    They are inputs: of the case, or of other arrays.
    """
    if arrays is None:
      arrays = self.arrays
      self.seen |= {key for key in arrays if key.startswith(f'{prefix}/')}
    tree = subtree(arrays, f'{prefix}/')
    tree['head'] = tree.pop(self.head)
    return tree

  def finish(self) -> None:
    """Fail if an array of the case was neither compared nor read."""
    left = self.arrays.keys() - self.seen
    assert not left, f'{self["case"]}: not compared: {sorted(left)}'

  def tolerance(self, key: str) -> tuple[float, float]:
    """Return rtol and atol of a stored array; what rounding took is off."""
    whole = rule = self['tolerance']
    if rule == 'exact' or rule.get('exact') is True:
      return 0, 0
    if key.startswith('steps_') and 'steps_*' in rule:
      rule = rule['steps_*']
    elif key.endswith('@stats') and 'stats' in rule:
      rule = rule['stats']
    return rule['rtol'], rule['atol'] - whole.get('rounded', 0)


def read_settings(path: Path) -> dict[str, Any]:
  return json.loads(path.read_text())


@functools.lru_cache(maxsize=4)  # the inputs that many cases share
def read_arrays(path: Path) -> dict[str, np.ndarray]:
  """Return the arrays of <case>.npz, or of <case>.npz.xz beside it."""
  packed = path.with_suffix('.npz.xz')
  content = packed if packed.exists() else path
  content = content.read_bytes()
  if packed.exists():
    content = lzma.decompress(content)
  with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
    return dict(arrays)


def discover(folder: Path) -> dict[str, Path]:
  """Return the cases of a folder and its subfolders: {id: file}.

  The id is the case's name; where two folders have the same name, the later
  one's carries its folder. Files without an algorithm are shared inputs.
  """
  cases: dict[str, Path] = {}
  for path in sorted(folder.rglob('*.json')):
    settings = read_settings(path)
    has_arrays = any(path.parent.glob(f'{path.stem}.npz*'))
    if 'algorithm' in settings and has_arrays:
      name = settings['case']
      cases[f'{path.parent.name}/{name}' if name in cases else name] = path
  return cases


def subtree(arrays: dict[str, np.ndarray], prefix: str = '') -> dict[str, Any]:
  """Return the arrays prefix<path> as the nested dict that the path names."""
  paths = {
    name.removeprefix(prefix): array
    for name, array in arrays.items()
    if name.startswith(prefix) and '@' not in name
  }
  return traverse_util.unflatten_dict(paths, sep='/')


def generated(params: list[dict[str, Any]]) -> dict[str, Any]:
  """Return the parameters that the hash of `parameter_generation` gives."""
  return subtree(
    {
      spec['name']: spec['offset'] + spec['scale'] * _hash(spec)
      for spec in params
    }
  )


def _hash(spec):
  z = np.arange(np.prod(spec['shape']), dtype=np.uint64)
  with np.errstate(over='ignore'):
    z += np.uint64(spec['seed'] << 32)
    z *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
      z ^= z >> np.uint64(shift)
      z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
  h = ((z >> np.uint64(48)).astype(np.float64) - 32768 + 0.5) / 32768
  return h.reshape(spec['shape'])


def digest(key: str, x: np.ndarray) -> np.ndarray:
  """Return what `key` stores of the array x."""
  _, _, kind = key.partition('@')
  if kind == 'stats':
    v = x.ravel()
    places = np.arange(1, v.size + 1) / v.size
    return np.array([v.sum(), np.sqrt((v * v).sum()), (v * places).sum()])
  return x.ravel()[:: int(kind.removeprefix('every'))] if kind else x
