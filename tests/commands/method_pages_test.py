"""The pages that methods.py writes."""

import methods

COMMAND = 'experiments/methods.py --write'


def test_the_docs_have_the_current_table_and_pages():
  found = methods.files()
  for file, text in found.items():
    assert file.read_text() == text, COMMAND
  folder = methods.FILE.parent / 'methods'
  pages = {path for path in folder.iterdir() if path.suffix != '.tex'}
  assert pages == {*found} - {methods.FILE}
  assert sum('$$' in text for text in found.values()) >= 18
