"""The repository, and the code that its pages show."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def code_of(page: str, under: str = '') -> list[str]:
  """Return the blocks of Python of a page; of one section, if it is named."""
  text = (ROOT / page).read_text()
  if under:
    text = text.partition(f'\n## {under}')[2].partition('\n## ')[0]
  return re.findall(r'```python\n(.*?)```', text, re.DOTALL)
