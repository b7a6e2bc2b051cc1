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
    print(f'{name}: {time.perf_counter() - began:,.0f} s', flush=True)
    outcomes += [found] if isinstance(found, Outcome) else found
  tried, well = (sum(one[i] for one in outcomes) for i in (1, 2))
  for row in (*outcomes, Outcome('all', tried, well)):
    print(f'{row.name:36} {row.tried:7,} tried {row.well:7,} ended well')
  for outcome in outcomes:
    for failure in outcome.failures:
      print(f'{outcome.name}: {failure}')
  return int(well < tried)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
