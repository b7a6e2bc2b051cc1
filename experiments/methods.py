"""Print the tables of all methods; --write puts them into docs/methods.md:

  python experiments/methods.py [--write]

Bytes are counted in the state and the messages of each method, and what a new
client does is in its docstring; see fedjax_pfl/analysis/method_table.py. Which
code a method was compared with is in its golden cases.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import flags

from experiments import commandline

FILE = commandline.ROOT / 'docs' / 'methods.md'
WRITE = flags.DEFINE_bool('write', False, 'replace the tables of the page')
METHODS, NEW_CLIENTS = 'methods', 'new clients'  # names of tables in the file
END = '<!-- end -->'
GOLDENS = commandline.ROOT / 'tests' / 'golden_cases' / 'data'
CODES = 'SuPerFed', 'FedConcat', 'pFedMe', 'NIID-Bench', 'FedVLS'


def split_file(name: str) -> tuple[str, str, str]:
  """Return the file before, in and after the place of a table."""
  text = FILE.read_text(encoding='utf-8')
  begin = f'<!-- {name}: experiments/methods.py -->'
  before, found, rest = text.partition(begin)
  table, also_found, after = rest.partition(END)
  assert found and also_found, f'{FILE.name} has no {begin} ... {END}'
  return before + begin, table, END + after


def golden_origins(names: list[str]) -> dict[str, str]:
  """Return whose code made the golden cases of each method, with numbers."""
  found = {name: Counter() for name in names}
  for path in sorted(GOLDENS.rglob('*.json')):
    case = json.loads(path.read_text())
    text = re.sub(r'\W', '_', case.get('algorithm', '').lower())
    for name in names:
      if text.startswith(name):
        found[name][origin(case['source'])] += 1
  return {
    name: ', '.join(f'{code} {n}' for code, n in codes.most_common()) or 'none'
    for name, codes in found.items()
  }


def origin(source: str) -> str:
  """Return whose code made a golden case, after its field `source`.

  A source that names functions and no repository is FedBABU's.
  """
  if source.startswith('independent') or ': independent; ' in source:
    return 'independent'
  places = {source.find(name): name for name in CODES if name in source}
  code = places[min(places)] if places else 'FedBABU'
  if source.startswith('third-party'):
    return f'{code} (third party)'
  is_part = 'independent code' in source or 'independent plain' in source
  return f'{code} in part' if is_part else code


def main(overrides):
  del overrides  # there is no config
  from fedjax_pfl.algorithms import available
  from fedjax_pfl.analysis.method_table import method_table, new_client_table

  origins = golden_origins(available())
  tables = {METHODS: method_table(origins), NEW_CLIENTS: new_client_table()}
  for name, table in tables.items():
    if not WRITE.value:
      print(f'{table}\n')
      continue
    before, _, after = split_file(name)
    FILE.write_text(f'{before}\n{table}\n{after}', encoding='utf-8')


if __name__ == '__main__':
  commandline.run(main)
