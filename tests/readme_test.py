"""README's example runs as it stands, and is short."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_notebook_example_runs(capsys):
  _, notebook = (ROOT / 'README.md').read_text().split('## In a notebook')
  code = re.search(r'```python\n(.*?)```', notebook, re.DOTALL)[1]
  assert len(code.splitlines()) <= 25
  scope = {}
  exec(compile(code, 'README.md', 'exec'), scope)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == ['0', '1', '2']
  assert int(scope['server'].round) == 3
