"""Judge the claims of a file, and put the verdicts into the pages."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction.claims import document, figures
from fedjax_pfl.reproduction.claims.entries import LoadTable, load_claims
from fedjax_pfl.reproduction.claims.verdicts import (
  Verdict,
  judge_claim,
  read_source,
)
from fedjax_pfl.settings import Settings

README, DOCUMENT, IMAGES = 'README.md', 'docs/results.md', 'docs/images'
BEGIN, END = '<!-- claims: experiments/claims.py -->', '<!-- end -->'
DRAWN = 'a'  # the claim of which every client is drawn


def judge(
  claims: pathlib.Path,
  results: pathlib.Path,
  load_table: LoadTable,
  configs: Mapping[str, Settings],
  log: Callable[[str], None],
) -> list[Verdict]:
  """Return the verdicts of a file of claims from a folder of results."""
  stated = load_claims(claims, load_table)
  if not results.is_dir():
    raise bad_input(
      'results',
      got=f'{results}, which is no folder',
      expected='a folder of results, with summary.csv and runs/',
      choices=['results'],
      cause='a mistyped path',
    )
  source = read_source(results, configs, log)
  return [judge_claim(claim, source) for claim in stated]


def texts(
  verdicts: Sequence[Verdict], results: pathlib.Path, root: pathlib.Path
) -> dict[pathlib.Path, str]:
  """Return {page: its text, with the verdicts between the marks}."""
  progress = document.progress(results)
  return {
    root / README: _replaced(
      root / README, f'{progress} {document.brief(verdicts)}'
    ),
    root / DOCUMENT: _replaced(
      root / DOCUMENT, f'{progress} {document.whole(verdicts)}'
    ),
  }


def write(
  verdicts: Sequence[Verdict], results: pathlib.Path, root: pathlib.Path
) -> list[pathlib.Path]:
  """Write pages and figures below `root`; return their paths."""
  pages = texts(verdicts, results, root)
  for path, text in pages.items():
    atomic_files.write_bytes(path, text.encode())
  drawn = [figures.save_forest(verdicts, root / IMAGES)]
  drawn += [
    figures.save_clients(one, root / IMAGES)
    for one in verdicts
    if one.claim.name == DRAWN
  ]
  return [*pages, *filter(None, drawn)]


def _replaced(page: pathlib.Path, section: str) -> str:
  text = page.read_text(encoding='utf-8')
  before, begun, rest = text.partition(BEGIN)
  _, ended, after = rest.partition(END)
  if not (begun and ended):
    raise bad_input(
      'page',
      got=f'{page} without {BEGIN} .. {END}',
      expected='both marks: what stands between them is replaced',
      choices=['put them back'],
      cause='the page was edited by hand',
    )
  return f'{before}{BEGIN}\n\n{section}\n\n{END}{after}'
