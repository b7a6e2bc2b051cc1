"""The pages that methods.py writes."""

import re

import methods
from commandline import ROOT

from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import paper_name

COMMAND = 'experiments/methods.py --write'


def test_the_docs_have_the_current_table_and_pages():
  found = methods.files()
  for file, text in found.items():
    assert file.read_text() == text, COMMAND
  folder = methods.FILE.parent / 'methods'
  pages = {path for path in folder.iterdir() if path.suffix != '.tex'}
  assert pages == {*found} - {methods.FILE}
  assert sum('$$' in text for text in found.values()) >= 18


RANKS = 'released', 'third party', 'independent', 'none'


def best_rank(origins):
  """Return the best that a method is compared with: 'FedBABU 2, ..'."""

  def rank(code):
    return code if code in RANKS else RANKS['(third party)' in code]

  codes = [re.sub(r' \d+$', '', code) for code in origins.split(', ')]
  return min(map(rank, codes), key=RANKS.index)


def test_the_documents_count_whose_code_the_methods_are_compared_with():
  found = {rank: [] for rank in RANKS}
  for name, origins in methods.golden_origins(algorithms.available()).items():
    found[best_rank(origins)].append(paper_name(name))
  released, foreign, alone, none = map(len, found.values())
  total = released + foreign + alone + none
  words = rf"""\b{released} of the {total} methods [^.]* {foreign} with a third
  party's[^.]* {alone} with an independent implementation alone"""
  for name in 'compare', 'methods', 'explain/guarantees':
    text = ' '.join((ROOT / 'docs' / f'{name}.md').read_text().split())
    assert re.search(' '.join(words.split()), text), name
    if name == 'methods':
      for rank in RANKS[1:3]:
        assert f'({", ".join(sorted(found[rank]))})' in text
  readme = (ROOT / 'README.md').read_text()
  assert f'{released} methods are compared number by number' in readme
  assert f'alone, and {none} with none' in text
