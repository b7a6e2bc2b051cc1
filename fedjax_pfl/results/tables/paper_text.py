"""What a paper says of a comparison: its protocol in words, and its sources."""

import re
from collections.abc import Callable
from pathlib import Path

import fedjax_pfl.algorithms as methods
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.results.runs.run import dataset_in_words
from fedjax_pfl.results.runs.stored_counts import About

RULE = (
  'Numbers are of the tests after the last round: means over clients, then '
  'over seeds. A difference is paired by client and seed; its 95 % interval '
  '(Student, over seeds) is of this comparison alone. It is distinguishable if '
  'p, by Holm over all comparisons with the baselines in a partition, is below '
  '0.05. The worst tenth is shown where each client has 50 tests. The choice '
  'of the settings is not covered; other seeds repeat it.'
)
ENTRY = re.compile(r'^@\w+\{(\w+),\n.*?^\}$', re.MULTILINE | re.DOTALL)
BIB = Path(methods.__file__).with_name('methods.bib')


def title_of(about: About) -> str:
  """Return '10 methods on CIFAR-10 with 20 clients'."""
  names = [*map(dataset_in_words, about.dataset.split(', '))]
  clients = str(dict(about.facts).get('num clients', ''))
  with_clients = f' with {clients} clients' * clients.isdecimal()
  return f'{len(about.methods)} methods on {" and ".join(names)}{with_clients}'


def methods_text(about: About, escape: Callable[[str], str] = str) -> str:
  """Return a paragraph on what was compared, tuned and decided, and how.

  With `escape`, of LaTeX, methods that have a paper are cited by their names.
  """
  known, names = {*references(about)}, []
  for name in about.methods:
    cite = f'~\\cite{{{name}}}' * (name in known and escape is not str)
    names.append(f'{escape(paper_name(name))}{cite}')
  facts = '; '.join(f'{name}: {value}' for name, value in about.facts if value)
  commit = f', commit {about.commit[:12]}' * bool(about.commit)
  parts = [
    f'{title_of(about)}, by fedjax_pfl {about.version}{commit}. {facts}.',
    *about.protocol,
    RULE,
  ]
  return f'{", ".join(names)}: {escape(" ".join(parts))}'


def references(about: About) -> dict[str, str]:
  """Return {method: its BibTeX entry}, of the methods that have a paper."""
  found = {one[1]: one[0] for one in ENTRY.finditer(BIB.read_text('utf-8'))}
  return {name: found[name] for name in about.methods if name in found}
