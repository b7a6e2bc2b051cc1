"""Print the table of all methods; --write makes docs/methods.md and its pages:

  python experiments/methods.py [--write]

The table goes into docs/methods.md; docs/methods/ has a page and a picture of
each method. Both are made from the files of the methods
(experiments/method_pages/page.py), their golden cases and results/tables/.
"""

import csv
import json
import re
from collections import Counter

import commandline
from absl import flags

FILE = commandline.ROOT / 'docs' / 'methods.md'
WRITE = flags.DEFINE_bool('write', False, 'write the table and the pages')
TABLE = re.compile(
  r'(?<=<!-- methods: experiments/methods.py -->\n).*(?=\n<!-- end -->)', re.S
)
GOLDENS = commandline.ROOT / 'tests' / 'golden_cases' / 'data'
TABLES = commandline.ROOT / 'results' / 'tables'
CODES = 'SuPerFed', 'FedConcat', 'pFedMe', 'NIID-Bench', 'FedVLS'


def golden_cases(names: list[str]) -> dict[str, list[tuple[str, str, str]]]:
  """Return name, source and recipe of the golden cases of each method."""
  cases = {name: [] for name in names}
  for path in sorted(GOLDENS.rglob('*.json')):
    case = json.loads(path.read_text())
    text = re.sub(r'\W', '_', case.get('algorithm', '').lower())
    for name in filter(text.startswith, names):
      stated = case['source'], case.get('recipe', '')
      cases[name].append((path.stem, *stated))
  return cases


def golden_origins(names: list[str]) -> dict[str, str]:
  """Return whose code made the golden cases of each method, with numbers."""
  origins = {}
  for name, cases in golden_cases(names).items():
    codes = Counter(origin(source) for _, source, _ in cases).most_common()
    origins[name] = ', '.join(f'{code} {n}' for code, n in codes) or 'none'
  return origins


def origin(source: str) -> str:
  """Return whose code made a golden case, after its field `source`.

  A source that names functions and no repository is FedBABU's.
  """
  if source.startswith('independent') or ': independent; ' in source:
    return 'independent'
  named = [code for code in CODES if code in source]
  if repository := re.match(r'[a-z-]+: [\w.-]+/([\w.-]+) at ', source):
    named = [repository[1]]
  code = min(named, key=source.find, default='FedBABU')
  if source.startswith('third-party'):
    return f'{code} (third party)'
  is_part = re.search('independent (code|plain)', source)
  return f'{code} in part' if is_part else code


def numbers_of(name: str) -> list[dict[str, str]]:
  """Return the rows of published tables that were run with a method."""
  numbers = []
  for path in sorted(TABLES.glob('*.csv')):
    with path.open(encoding='utf-8') as file:
      rows = [*csv.DictReader(file)]
    table = path.stem.replace('_', '/', 1)
    for row in rows:
      method = row.get('algorithm', '')  # '': layers of FedBABU
      if row.get('ours_mean') and re.fullmatch(f'{name}(_[a-z]+)?', method):
        fields = [*row.items()][: [*row].index('seeds')]
        named = ('='.join(x) for x in fields if x != ('algorithm', name))
        setting = f'`{", ".join(named)}`'
        numbers.append({**row, 'table': f'`{table}`', 'setting': setting})
  return numbers


def files() -> dict:
  """Return what every generated file contains: {path: text}."""
  from experiments.method_pages import page, picture, table
  from fedjax_pfl.algorithms import available

  names = available()
  task, model = table.small_model()
  cases = golden_cases(names)
  traced = {name: table.trace(name, task) for name in names}
  rows = table.method_table(traced, golden_origins(names))
  index = FILE.read_text(encoding='utf-8')
  texts = {FILE: TABLE.sub(lambda _: rows, index)}
  for name, stages in traced.items():
    path = FILE.parent / 'methods' / name
    of_paper = [stage for stage in stages if not stage.reading]
    tex = path.with_suffix('.tex')
    equations = tex.read_text(encoding='utf-8') if tex.exists() else ''
    texts[path.with_suffix('.md')] = page.page(
      name, stages, cases[name], numbers_of(name), equations
    )
    texts[path.with_suffix('.svg')] = picture.picture(of_paper, model)
  return texts


def main():
  texts = files()
  if not WRITE.value:
    print(TABLE.search(texts[FILE])[0])
    return
  for file, text in texts.items():
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding='utf-8')


if __name__ == '__main__':
  commandline.run(main)
