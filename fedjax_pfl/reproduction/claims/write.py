"""Judge the claims of a file, and put the verdicts into the pages."""

import pathlib
from collections.abc import Sequence

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction import summary_rows
from fedjax_pfl.reproduction.claims import claims_page, figures
from fedjax_pfl.reproduction.claims.claims_file import load_claims
from fedjax_pfl.reproduction.claims.verdicts import Verdict, judge_claim
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.toml_entries import LoadTable

PAGES = {'README.md': claims_page.brief, 'docs/results.md': claims_page.whole}
IMAGES = 'docs/images'
BEGIN, END = '<!-- claims: experiments/claims.py -->', '<!-- end -->'


def judge(
  claims: pathlib.Path,
  folder: pathlib.Path,
  load_table: LoadTable,
  configs: summary_rows.Configs,
  log: summary_rows.Log,
) -> list[Verdict]:
  """Return the verdicts of a file of claims from a folder of results."""
  stated = load_claims(claims, load_table)
  if not folder.is_dir():
    raise bad_input(
      'results',
      got=f'{folder}, which is no folder',
      expected='a folder of results, with summary.csv and runs/',
      choices=['results'],
      cause='a mistyped path',
    )
  results = Results(folder)
  summary_rows.read_rows(results, configs, log)
  return [judge_claim(claim, results) for claim in stated]


def texts(
  verdicts: Sequence[Verdict], results: pathlib.Path, root: pathlib.Path
) -> dict[pathlib.Path, str]:
  """Return {page: its text, with the verdicts between the marks}."""
  progress = claims_page.progress(results)
  return {
    root / page: _replaced(root / page, f'{progress} {section(verdicts)}')
    for page, section in PAGES.items()
  }


def write(
  verdicts: Sequence[Verdict], results: pathlib.Path, root: pathlib.Path
) -> list[pathlib.Path]:
  """Write pages and figures below `root`; return their paths."""
  pages = texts(verdicts, results, root)
  for path, text in pages.items():
    atomic_files.write_bytes(path, text.encode())
  drawn = figures.save_all(verdicts, root / IMAGES)
  return [*pages, *drawn]


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
