"""Run every campaign, or those that are named: python -m tests.faults disks"""

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = map(str, (TESTS.parent, TESTS, TESTS / 'support'))
# How much of each is tried; of kills all moments, about a hundred.
CAMPAIGNS = {'kills': 999, 'damages': 300, 'disks': 60, 'mutations': 1000}


def main(names: list[str]) -> int:
  """Print how many trials ended well; return 1 if one did not."""
  from faults import campaigns

  failures = []
  for name in names or CAMPAIGNS:
    with tempfile.TemporaryDirectory() as folder:
      ends = [*getattr(campaigns, name)(Path(folder), 0, CAMPAIGNS[name])]
    wrong = [end for end in ends if end]
    print(
      f'{name}: {len(ends):,} tried, {len(wrong):,} ended badly', flush=True
    )
    failures += wrong
  print(*failures, sep='\n')
  return int(bool(failures))


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
