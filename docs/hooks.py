"""Pages of the site that are made from other files, and links to them.

mkdocs calls the functions on_*. Nothing here imports the package: docstrings
and the flags of commands are read from the text of the files.
"""

import ast
import json
import posixpath
import re
import runpy
import sys
from pathlib import Path
from textwrap import dedent, indent
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / 'docs'
INIT = ROOT / 'fedjax_pfl' / '__init__.py'
COMMANDS = runpy.run_path(str(INIT.parent / 'core' / 'commands.py'))
SUBCOMMANDS = {
  file: name for name, (file, _) in COMMANDS['SUBCOMMANDS'].items()
}
NPM = Path(sys.prefix) / 'npm'  # unpacked there by docs/npm_files.py
SHIM = 'https://unpkg.com/iframe-worker/shim'  # in every page of the theme
# Files outside docs/ that are pages of the site, by their place in it.
PAGES = {
  'README.md': 'index.md',
  'BUILD.md': 'dev/build.md',
  'CONTRIBUTING.md': 'dev/contributing.md',
  'CHANGELOG.md': 'dev/changelog.md',
} | {
  f'notebooks/{path.name}': f'tutorials/{path.stem}.md'
  for path in sorted((ROOT / 'notebooks').glob('*.ipynb'))
}
LINK = re.compile(r'(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)')
SENTENCE = 36  # characters of a cell that is wide
NAME = 18  # characters of a first cell that a phone shows in one line
WORD = re.compile(r'(?<![\w`-])--[a-z][\w.=:/-]*\w')  # a flag, in prose
FLAG = re.compile(r'(?<=[>\s])--[\w.]+')
FENCE = re.compile(r'^(```.*?^```)', re.MULTILINE | re.DOTALL)


def on_config(config):
  """Put every page of a folder in the place of its `*` in the nav."""
  made = [*PAGES.values(), *api_pages()]
  made += [path.relative_to(DOCS).as_posix() for path in pages()]
  listed = set(re.findall(r'[\w/]+\.md', str(config.nav)))

  def expand(items):
    for item in items:
      if isinstance(item, dict):
        ((name, inner),) = item.items()
        yield {name: [*expand(inner)] if isinstance(inner, list) else inner}
      elif item.endswith('/*'):
        folder = item[:-2]
        found = {page for page in made if posixpath.dirname(page) == folder}
        yield from sorted(found - listed, key=made.index)
      else:
        yield item

  config.nav = [*expand(config.nav)]
  return config


def pages():
  """Return the stored pages; those of methods by the names of the methods."""
  return sorted(DOCS.rglob('*.md'), key=lambda page: page.stem.lower())


def on_files(files, config):
  """Add what is made from other files, and the scripts of npm."""
  from mkdocs.structure.files import File

  def add(page, **content):
    files.append(File.generated(config, page, **content))

  for source, page in PAGES.items():
    text = (ROOT / source).read_text(encoding='utf-8')
    if source.endswith('.ipynb'):
      text = notebook_page(json.loads(text), source)
    add(page, content=text)
  for page, text in api_pages().items():
    add(page, content=text)
  add('commands.md', content=command_page())
  if not NPM.is_dir():
    raise SystemExit(f'no {NPM}: `make docs` installs KaTeX there')
  for path in sorted(NPM.rglob('*.*')):
    name = f'npm/{path.relative_to(NPM).as_posix()}'
    add(name, abs_src_path=str(path))
  return files


def on_page_markdown(markdown, page, config, files):
  """Lead links to where the site has their files, or to the repository."""
  here = page.file.src_uri
  sources = {place: source for source, place in PAGES.items()}
  folder = posixpath.dirname(sources.get(here, f'docs/{here}'))

  def change(match):
    picture, text, path, anchor = match[1], match[2], match[3], match[4] or ''
    if '://' in path or path.startswith(('mailto:', 'data:')) or not path:
      return match[0]
    if here in sources or path.startswith('..'):
      target = posixpath.normpath(posixpath.join(folder, path))
    else:
      return match[0]
    if target in PAGES or target.startswith('docs/'):
      place = PAGES.get(target, target.removeprefix('docs/'))
      path = posixpath.relpath(place, posixpath.dirname(here) or '.')
      return f'{picture}[{text}]({path}{anchor})'
    if config.repo_url:
      return f'[{text}]({config.repo_url}/blob/main/{target}{anchor})'
    return text

  parts = FENCE.split(markdown.replace('-->\n|', '-->\n\n|'))
  parts[::2] = [LINK.sub(change, part) for part in parts[::2]]
  return ''.join(parts)


def on_page_content(html, **_):
  """Mark wide cells of tables, and what no line may break.

  A flag is one word, and a stop does not part from the symbol before it. The
  search shows no equations.
  """

  def mark(match):
    size = len(re.sub('<[^>]*>', '', match[1]))
    kind = 'words' if size > SENTENCE else 'long'
    return match[0].replace('<td', f'<td class="{kind}"', size > NAME)

  def whole(match):
    return FLAG.sub(r'<span class="whole">\g<0></span>', match[0])

  html = re.sub(r'<td\b[^>]*>(.*?)</td>', mark, html, flags=re.DOTALL)
  html = re.sub(r'<code>[^<]*</code>', whole, html)
  shown = '<div class="arithmatex"'
  html = html.replace(shown, f'{shown} data-search-exclude')
  symbol = r'(<span class="arithmatex">[^<]*</span>[.,:;)]+)'
  return re.sub(symbol, r'<span class="whole">\1</span>', html)


def on_post_page(output, page, config):
  """Serve the script of the search from the site, not from another one."""
  here = posixpath.dirname(page.file.dest_uri) or '.'
  return output.replace(SHIM, posixpath.relpath('npm/shim/index.js', here))


def on_post_template(output, config, **_):
  """Do so in 404.html, which is shown at any address."""
  root = urlsplit(config.site_url or '').path or '/'
  return output.replace(SHIM, f'{root}npm/shim/index.js')


def themes():
  """Return the public names by theme: the table of the package's docstring."""
  text = ast.get_docstring(ast.parse(INIT.read_text(encoding='utf-8')))
  table = re.search(r'\n\n( {2}\w.*?)\n\n', text, re.DOTALL)[1]
  found, theme = {}, ''
  for line in table.splitlines():
    head, names = line[2:16].strip(), line[16:].partition(':')[0]
    theme = head or theme
    found.setdefault(theme, []).extend(re.findall(r'\w+', names))
  return found


def api_pages():
  """Return the pages of the API: {place: text}, one a theme."""
  tree = ast.parse(INIT.read_text(encoding='utf-8'))
  places = {
    alias.name: f'{node.module}.{alias.name}'
    for node in ast.walk(tree)
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
  }
  late = next(
    ast.literal_eval(node.value)
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == '_LATE'
  )
  places |= {name: f'{module}.{name}' for name, module in late.items()}
  return {
    f'api/{theme.lower().replace(" ", "_")}.md': '\n\n'.join(
      [f'# {theme}', *(f'::: {places[name]}' for name in names)]
    )
    for theme, names in themes().items()
  }


def command_page():
  """Return every command of experiments/: its docstring and its flags."""
  parts = ['# Commands']
  for path in sorted((ROOT / 'experiments').glob('*.py')):
    tree = ast.parse(path.read_text(encoding='utf-8'))
    flags = [flag for node in ast.walk(tree) if (flag := flag_of(node))]
    text = ast.get_docstring(tree)
    typed = f'python experiments/{path.name}'
    if path.stem in SUBCOMMANDS:
      typed = f'fedjax-pfl {SUBCOMMANDS[path.stem]}'
    elif typed not in text and path.name != 'demo.py':
      continue  # a part of commands
    parts += [f'## {path.stem}', f'`{typed}`']
    for block in text.replace('*', r'\*').split('\n\n'):
      is_code = block.startswith(' ')
      words = WORD.sub(r'`\g<0>`', block)
      parts.append(indent(dedent(block), '    ') if is_code else words)
    if flags:
      rows = [
        f'| `--{name}` | `{default}` | {text} |'
        for name, default, text in flags
      ]
      parts += [
        '\n'.join(['| flag | default | meaning |', '|---|---|---|', *rows])
      ]
  return '\n\n'.join(parts)


def flag_of(node):
  """Return name, default and meaning of a flag that a call defines."""
  if not isinstance(node, ast.Call):
    return None
  if not ast.unparse(node.func).startswith('flags.DEFINE_'):
    return None
  name, *rest = node.args
  words = [ast.unparse(one) for one in rest[1:]]
  if words == ['commandline.CONFIG']:
    words = ['"a config file, e.g. digits:fedbabu[,quick]"']
  text = [one[1:-1] for one in words if one[0] in '\'"'] or ['']
  default = ast.unparse(rest[0]) if rest else ''
  return ast.literal_eval(name), default, text[-1].replace('|', r'\|')


def notebook_page(notebook, source):
  """Return a notebook as Markdown, with the outputs that it stores."""
  parts = []
  for cell in notebook['cells']:
    text = ''.join(cell['source'])
    if cell['cell_type'] == 'markdown':
      parts.append(text)
    elif text:
      parts.append(f'```python\n{text}\n```')
    for output in cell.get('outputs', ()):
      data = output.get('data', {})
      if 'image/png' in data:
        picture = ''.join(data['image/png']).replace('\n', '')
        alt = 'What the code above draws'
        parts.append(f'![{alt}](data:image/png;base64,{picture})')
      else:
        shown = ''.join(data.get('text/plain', output.get('text', '')))
        parts.append(f'```text\n{shown.rstrip()}\n```')
  title, rest = parts[0], parts[1:]
  note = f'The notebook is `{source}`; run it with Jupyter.'
  return '\n\n'.join([title, note, *rest])
