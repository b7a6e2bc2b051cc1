"""The page and the help text name every field, as the code has it now."""

from pathlib import Path

from fedjax_pfl.settings import FIELDS, document

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_code():
  stored = (ROOT / 'docs' / 'settings.md').read_text()
  assert stored == document.as_markdown(), (
    'docs/settings.md: python experiments/settings.py --write'
  )
  lines = document.as_text().splitlines()
  assert '  num_clients (100): registered clients, K' in lines
  for name in FIELDS:
    assert any(line.startswith(f'  {name} (') for line in lines), name
