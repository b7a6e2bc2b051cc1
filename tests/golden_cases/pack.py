"""Pack a folder of golden cases, with full arrays, for the repository:

  python -m tests.golden_cases.pack FULL tests/golden_cases/data

A case is packed only if it passes whole. Inputs stay as they are. Of an array
that the check compares, every k-th element is kept (k is a prime, about MOST
are left), beside three sums of all elements. Both are rounded to a hundredth of
the tolerance, and the comparison then takes the rounding off the tolerance. At
last the packed case must accept the same arrays, and none of them that is off
by ten times the tolerance.
"""

import io
import json
import lzma
import sys
from pathlib import Path

import jax
import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = map(str, (TESTS.parent, TESTS, TESTS / 'support'))

import goldens  # noqa: E402

MOST = 64


class Recorded(goldens.Case):
  """A case that keeps the arrays that its check computed."""

  def __init__(self, path: Path):
    super().__init__(path)
    self.computed: dict[str, np.ndarray] = {}

  def check(self, name, got, exact=False):
    super().check(name, got, exact)
    stored = self.digests.get(name, [])
    if stored and not exact and self.arrays[stored[0]].dtype == float:
      self.computed[name] = np.asarray(got, float)


def pack(path: Path, starts: dict[str, str], check_fn, to: Path) -> None:
  """Write a case, or inputs, to a folder; starts: {file: parameters in it}."""
  case = Recorded(path)
  arrays, outputs = dict(case.arrays), {}
  if check_fn:
    check_fn(case)
    rule = case['tolerance']
    for name in case.computed:
      if not name.startswith(starts.get(f'{path.stem}.npz', '@')):
        for key in case.digests[name]:
          outputs |= thinned(key, name, arrays.pop(key))
    if outputs:
      smallest = min(rule['atol'], rule.get('stats', rule)['atol'])
      rule['rounded'] = 2.0 ** np.floor(np.log2(smallest / 100))
      unit = 2 * rule['rounded']
      arrays |= {k: np.round(v / unit) * unit for k, v in outputs.items()}
  stream = io.BytesIO()
  np.savez(stream, **arrays)
  to.mkdir(parents=True, exist_ok=True)
  content = lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)
  (to / f'{path.stem}.npz.xz').write_bytes(content)
  (to / path.name).write_text(json.dumps(case.settings, indent=1) + '\n')
  try_again(goldens.Case(to / path.name), case.computed)


def thinned(key: str, name: str, values: np.ndarray) -> dict[str, np.ndarray]:
  """Return what is kept of a stored array: some elements, and its sums."""
  if values.size <= MOST:
    return {key: values}
  step = max(3, values.size // MOST | 1)
  while any(step % n == 0 for n in range(3, step, 2)):
    step += 2
  before = int(key.partition('@every')[2] or 1)
  kept = {f'{name}@every{step * before}': values.ravel()[::step]}
  if before == 1:
    kept[f'{name}@stats'] = goldens.digest('@stats', values)
  return kept


def try_again(case: goldens.Case, computed: dict[str, np.ndarray]) -> None:
  """Fail unless these arrays pass, and fail at ten times the tolerance."""
  for name, values in computed.items():
    case.check(name, values)
    rtol, atol = case.tolerance(name)
    try:
      case.check(name, values + 10 * (atol + rtol * np.abs(values)))
    except AssertionError:
      continue
    raise AssertionError(f'{case.path}: a mistake in {name} passes')


def main(full: Path, to: Path) -> None:
  from golden_cases_test import CHECKS

  jax.config.update('jax_enable_x64', True)
  jax.config.update('jax_disable_most_optimizations', True)
  for path in sorted(full.rglob('*.json')):
    others = map(goldens.read_settings, path.parent.glob('*.json'))
    starts = [o['start_params'] for o in others if 'start_params' in o]
    algorithm = goldens.read_settings(path).get('algorithm', '').lower()
    pack(
      path,
      {start['file']: start['prefix'] for start in starts},
      CHECKS.get(algorithm),
      to / path.parent.relative_to(full),
    )
    print(path.stem, flush=True)


if __name__ == '__main__':
  main(*map(Path, sys.argv[1:]))
