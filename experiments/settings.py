"""Print every field of a config; --write puts them into docs/settings.md.

python experiments/settings.py [--write]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags

from experiments import commandline

PAGE = commandline.ROOT / 'docs' / 'settings.md'
WRITE = flags.DEFINE_bool('write', False, 'write docs/settings.md')


def main(overrides):
  del overrides  # there is no config
  from fedjax_pfl.settings import document

  if WRITE.value:
    PAGE.write_text(document.as_markdown())
  else:
    print(document.as_text())


if __name__ == '__main__':
  commandline.run(main)
