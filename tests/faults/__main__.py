"""Run every campaign at its full length, and print what came of it:

  python -m tests.faults         all of them
  python -m tests.faults disks   those of these modules

A campaign is a module of this folder with `run(count, seed)`, which yields what
was tried and how each trial ended: '' is a good end. The exit status is 1 if
anything did not end well.
"""

import importlib
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = map(str, (TESTS.parent, TESTS, TESTS / 'support'))

CAMPAIGNS = {'moments': 0, 'disks': 60}  # how much of each is tried


def main(names: list[str]) -> int:
  """Return the exit status after these campaigns; after all without a name."""
  failures = []
  for name in names or CAMPAIGNS:
    campaign = importlib.import_module(f'faults.{name}')
    for what, ends in campaign.run(CAMPAIGNS[name], seed=0):
      wrong = [f'{what}: {end}' for end in ends if end]
      well = len(ends) - len(wrong)
      print(f'{what:36} {len(ends):7,} tried {well:7,} ended well', flush=True)
      failures += wrong
  print(*failures, sep='\n')
  return int(bool(failures))


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
