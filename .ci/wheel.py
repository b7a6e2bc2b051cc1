"""Build the wheel from a copy, so that nothing is left beside the sources:

  python .ci/wheel.py FOLDER

README's links are made absolute in the copy where REPO_URL names a repository,
and plain words where it does not: PyPI shows README, and not the files.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r'(!?)\[([^\[\]]*)\]\((?!\w+://|#)([^)\s]+)\)')


def absolute(text, url):
  """Return README's text with links that work elsewhere."""

  def change(match):
    picture, words, path = match.groups()
    if not url:
      return '' if picture else words
    return (
      f'{picture}[{words}]({url}/{"raw" if picture else "blob"}/main/{path})'
    )

  return LINK.sub(change, text)


def main(folder):
  url = os.environ.get('REPO_URL', '').rstrip('/')
  with tempfile.TemporaryDirectory() as place:
    copy = Path(place) / 'copy'
    names = 'README.md', 'LICENSE', 'setup.cfg', 'pyproject.toml', 'configs'
    # Links to configs/ and experiments/ become folders.
    unwanted = shutil.ignore_patterns('__pycache__')
    for name in (*names, 'experiments', 'fedjax_pfl'):
      source = ROOT / name
      how = {'ignore': unwanted} if source.is_dir() else {}
      make = shutil.copytree if source.is_dir() else shutil.copy
      copy.mkdir(exist_ok=True)
      make(source, copy / name, **how)
    readme = copy / 'README.md'
    readme.write_text(absolute(readme.read_text(), url))
    if url:
      setup = copy / 'setup.cfg'
      urls = f'project_urls =\n    Source = {url}\n'
      setup.write_text(
        setup.read_text().replace('[options]', f'{urls}\n[options]', 1)
      )
    words = ['-m', 'pip', 'wheel', '--no-deps', '--quiet', '--wheel-dir']
    subprocess.run([sys.executable, *words, folder, str(copy)], check=True)


if __name__ == '__main__':
  main(sys.argv[1])
