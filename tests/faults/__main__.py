"""Run every campaign at its full length, and print what came of it:

  python -m tests.faults             all of them
  python -m tests.faults mutations   those of these modules

A campaign is a module of this folder with `run(count, seed)`, which returns an
`Outcome` or several. The exit status is 1 if anything did not end well.
"""

import importlib
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = map(str, (TESTS.parent, TESTS, TESTS / 'support'))

from faults.outcome import Outcome  # noqa: E402

SEED = 0
# Module -> how much of it `make faults` tries.
CAMPAIGNS: dict[str, int] = {
  'mutations': 2000,
  'commands': 200,  # and 40 processes
  'accepted': 20,
  'moments': 10_000,  # all there are: about a hundred
  'damage': 300,
  'disks': 60,
  'locks': 10,
  'signals': 20,
  'kills': 100,
}


def main(names: list[str]) -> int:
  """Return the exit status after these campaigns; after all without a name."""
  strangers = [name for name in names if name not in CAMPAIGNS]
  if strangers:
    print(f'No campaign {strangers}. There are: {", ".join(CAMPAIGNS)}')
    return 1
  outcomes = []
  for name in names or CAMPAIGNS:
    began = time.perf_counter()
    found = importlib.import_module(f'faults.{name}').run(CAMPAIGNS[name], SEED)
    found = [found] if isinstance(found, Outcome) else list(found)
    print(f'{name}: {time.perf_counter() - began:,.0f} s', flush=True)
    outcomes += found
  print(table(outcomes))
  for outcome in outcomes:
    for failure in outcome.failures:
      print(f'{outcome.name}: {failure}')
  return int(any(one.well < one.tried for one in outcomes))


def table(outcomes: list[Outcome]) -> str:
  """Return a line for each outcome, and one for all of them."""
  tried, well = (sum(one[i] for one in outcomes) for i in (1, 2))
  rows = [('campaign', 'tried', 'ended well')]
  rows += [(o.name, f'{o.tried:,}', f'{o.well:,}') for o in outcomes]
  rows.append(('all', f'{tried:,}', f'{well:,}'))
  width = max(len(name) for name, *_ in rows)
  return '\n'.join(f'{n:{width}}  {t:>7}  {w:>10}' for n, t, w in rows)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
