"""Print the tables of all methods; --write puts them into docs/methods.md:

  python experiments/methods.py [--write]

Bytes are counted in the state and the messages of each method, and what a new
client does is in its docstring; see fedjax_pfl/analysis/method_table.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags

from experiments import commandline

FILE = commandline.ROOT / 'docs' / 'methods.md'
WRITE = flags.DEFINE_bool('write', False, f'replace the tables in {FILE.name}')
METHODS, NEW_CLIENTS = 'methods', 'new clients'  # names of tables in the file
END = '<!-- end -->'


def split_file(name: str) -> tuple[str, str, str]:
  """Return the file before, in and after the place of a table."""
  text = FILE.read_text(encoding='utf-8')
  begin = f'<!-- {name}: experiments/methods.py -->'
  before, found, rest = text.partition(begin)
  table, also_found, after = rest.partition(END)
  assert found and also_found, f'{FILE.name} has no {begin} ... {END}'
  return before + begin, table, END + after


def main(overrides):
  del overrides  # there is no config
  from fedjax_pfl.analysis.method_table import method_table, new_client_table

  tables = {METHODS: method_table(), NEW_CLIENTS: new_client_table()}
  for name, table in tables.items():
    if not WRITE.value:
      print(f'{table}\n')
      continue
    before, _, after = split_file(name)
    FILE.write_text(f'{before}\n{table}\n{after}', encoding='utf-8')


if __name__ == '__main__':
  commandline.run(main)
