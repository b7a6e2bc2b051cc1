"""Run every campaign at its full length, and print what came of it:

  python -m tests.faults             all of them
  python -m tests.faults mutations   those of these modules

A campaign is a module of this folder with `run(count, seed)`, which yields what
was tried and how each trial ended: '' is a good end. The exit status is 1 if
anything did not end well.
"""

import importlib
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = map(str, (TESTS.parent, TESTS, TESTS / 'support'))

SEED = 0
# Module -> how much of it `make faults` tries.
CAMPAIGNS: dict[str, int] = {
  'mutations': 1000,  # and 20 that are accepted are trained
  'commands': 1200,
  'moments': 300,  # damages, and all moments: about a hundred
  'disks': 60,
  'locks': 10,
}


def main(names: list[str]) -> int:
  """Return the exit status after these campaigns; after all without a name."""
  strangers = [name for name in names if name not in CAMPAIGNS]
  if strangers:
    print(f'No campaign {strangers}. There are: {", ".join(CAMPAIGNS)}')
    return 1
  rows, failures = [], []
  for name in names or CAMPAIGNS:
    began = time.perf_counter()
    campaign = importlib.import_module(f'faults.{name}')
    for what, ends in campaign.run(CAMPAIGNS[name], SEED):
      wrong = [f'{what}: {end}' for end in ends if end]
      rows.append((what, len(ends), len(ends) - len(wrong)))
      failures += wrong
    print(f'{name}: {time.perf_counter() - began:,.0f} s', flush=True)
  for what, tried, well in rows:
    print(f'{what:36} {tried:7,} tried {well:7,} ended well')
  print(*failures, sep='\n')
  return int(bool(failures))


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
