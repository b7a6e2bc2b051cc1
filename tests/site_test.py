"""The site has every page and every public name, each once."""

import importlib.util
import re
from fnmatch import fnmatch
from pathlib import Path

import fedjax_pfl as pfl

ROOT = Path(__file__).parents[1]
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
