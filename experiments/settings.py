"""Print every field of a config; --write puts them into docs/settings.md.

fedjax-pfl settings [--write]
"""

import commandline
from absl import flags

PAGE = commandline.ROOT / 'docs' / 'settings.md'
WRITE = flags.DEFINE_bool('write', False, 'write docs/settings.md')


def main():
  from fedjax_pfl.settings import document

  if WRITE.value:
    PAGE.write_text(document.as_markdown())
  else:
    print(document.as_text())


if __name__ == '__main__':
  commandline.run(main)
