"""The site has every page and every public name, each once."""

import importlib.util
import re
import shutil
import subprocess
from fnmatch import fnmatch

import pytest
from pages import ROOT

import fedjax_pfl as pfl

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
METHOD = ROOT / 'site' / 'methods' / 'fedbabu.html'
SPEC = importlib.util.spec_from_file_location('hooks', ROOT / 'docs/hooks.py')
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


def test_every_public_name_is_on_one_page():
  pages = hooks.api_pages()
  names = re.findall(r'^::: .*\.(\w+)$', '\n'.join(pages.values()), re.M)
  assert sorted(names) == pfl.__all__
  assert len(pages) == len(hooks.themes())


def test_every_page_is_in_the_navigation():
  _, nav = (ROOT / 'mkdocs.yml').read_text().split('\nnav:\n')
  listed = re.findall(r'[\w/]+(?:\.md|/\*)', nav)
  assert len(listed) == len({*listed})
  made = [*hooks.PAGES.values(), *hooks.api_pages(), 'commands.md']
  pages = hooks.DOCS.rglob('*.md')
  stored = [page.relative_to(hooks.DOCS).as_posix() for page in pages]
  for page in made + stored:
    assert any(fnmatch(page, one) for one in listed), page
  for page in listed:
    assert page.endswith('*') or page in made + stored, page


@pytest.mark.skipif(not CHROMIUM, reason='no chromium: "make browser"')
@pytest.mark.skipif(not METHOD.exists(), reason='no site: "make docs"')
def test_a_browser_shows_the_equation_of_a_method(tmp_path):
  run = subprocess.run(
    [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu']
    + [f'--user-data-dir={tmp_path}', '--virtual-time-budget=8000']
    + ['--dump-dom', METHOD.as_uri()],
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert 'arithmatex' in METHOD.read_text()
  assert '<span class="katex-display">' in run.stdout
  assert 'katex-error' not in run.stdout
  assert not re.search(r'<script[^>]* src="?http', METHOD.read_text())
