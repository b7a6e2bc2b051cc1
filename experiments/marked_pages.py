"""Pages that are written by hand, but for what stands between two marks."""

from pathlib import Path

from fedjax_pfl.core.errors import bad_input

END = '<!-- end -->'


def filled(page: Path, begin: str, section: str) -> str:
  """Return the text of a page with this section between its marks."""
  text = page.read_text(encoding='utf-8')
  before, begun, rest = text.partition(begin)
  _, ended, after = rest.partition(END)
  if not (begun and ended):
    raise bad_input(
      'page',
      got=f'{page} without {begin} .. {END}',
      expected='both marks: what stands between them is replaced',
    )
  return f'{before}{begin}\n\n{section}\n\n{END}{after}'
