"""Print the table of all methods; --write puts it into docs/methods.md:

  python experiments/methods.py [--write]

Bytes are counted in the state and the messages of each method; see
fedjax_pfl/analysis/method_table.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags, logging

from experiments import commandline

FILE = commandline.ROOT / 'docs' / 'methods.md'
WRITE = flags.DEFINE_bool('write', False, f'replace the table in {FILE.name}')
BEGIN, END = '<!-- methods: experiments/methods.py -->', '<!-- end -->'


def split_file() -> tuple[str, str, str]:
  """Return the file before, in and after the place of the table."""
  text = FILE.read_text(encoding='utf-8')
  before, found, rest = text.partition(BEGIN)
  table, also_found, after = rest.partition(END)
  assert found and also_found, f'{FILE.name} has no {BEGIN} ... {END}'
  return before, table, after


def main(overrides):
  del overrides  # there is no config
  logging.set_verbosity(logging.WARNING)
  from fedjax_pfl.analysis.method_table import method_table

  table = method_table()
  if not WRITE.value:
    print(table)
    return
  before, _, after = split_file()
  FILE.write_text(f'{before}{BEGIN}\n{table}\n{END}{after}', encoding='utf-8')


if __name__ == '__main__':
  commandline.run(main)
