"""Print every field of a config; --write puts them into docs/settings.md.

python experiments/settings.py [--write]
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from absl import app, flags

WRITE = flags.DEFINE_bool('write', False, 'Write docs/settings.md.')


def main(argv):
  del argv
  from fedjax_pfl.settings import document

  if WRITE.value:
    (ROOT / 'docs' / 'settings.md').write_text(document.as_markdown())
  else:
    print(document.as_text())


if __name__ == '__main__':
  app.run(main)
