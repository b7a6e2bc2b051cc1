"""The page of a method in Markdown, from its file: docstring, code, options.

The docstring is the page. Its indented blocks are equations: docs/methods/ has
their LaTeX in their order (NAME.tex); a block without is shown as it stands.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from experiments.method_pages.table import (
  MODEL,
  Traced,
  condition,
  family,
  title_of,
)
from fedjax_pfl.algorithms import available, load, own_defaults
from fedjax_pfl.results.tables.table import markdown

DIFFERS, NEW_CLIENT = 'Differs from the paper', 'New client'  # paragraphs
FIELD = re.compile(r'^  (\w+): .*?(?:  # (.*))?$', re.M)
# Of a sentence: a_i, x_ij, alpha_i, beta_2; not the name of a field.
SYMBOL = re.compile(
  r'(?<![`\w.])(alpha|beta|eta|sum|tau|theta|[A-Za-z])_([a-z]{1,2}|\d)(?![`\w])'
)
MOST_LINES = 80  # of code
UNSHOWN = '<lambda>', 'refuse'  # functions
CODE_TODAY = "The authors' code, run today, "
SHARED = 'Those of local training and fine-tuning: [settings](../settings.md).'
BOARD = 'All methods by one protocol: [leaderboard](../leaderboard.md).'
RUN = (
  'Published numbers, and ours of the runs in `results/`, in percent. '
  f'Differences and doubts: [results](../results.md). {BOARD}'
)


def page(
  name: str,
  traced: Sequence[Traced],
  cases: Sequence[tuple[str, str, str]],
  numbers: Sequence[Mapping[str, str]],
  equations: str,
) -> str:
  """Return the page of a method with its stages.

  `cases` are name, source and recipe of golden cases; `numbers` rows of
  results/tables/, with 'table' and 'setting'; `equations` LaTeX, with an empty
  line between two blocks.
  """
  module, title = load(name), title_of(name)
  link = getattr(module, 'PAPER', '')
  paper = f'[{title["paper"]}](https://{link})' if link else title['paper']
  sections = {
    'Who keeps what': traffic(name, traced),
    'In code': code(module, traced),
    'Options': options(name),
    "Print, authors' code and ours": results(numbers),
    DIFFERS: paragraph(DIFFERS, module),
    NEW_CLIENT: paragraph(NEW_CLIENT, module),
    'Compared with': '\n'.join(
      f'- `{case}`: {source}' + f'. Recorded so: {recipe}' * bool(recipe)
      for case, source, recipe in cases
    )
    or 'No golden case.',
    'Related': ', '.join(
      f'[{title_of(other)["name"]}]({other}.md)'
      for other in available()
      if other != name and family(other) == family(name)
    )
    or 'No other method of this family.',
  }
  what, *rest = body(module, equations)
  parts = [
    f'# {title["name"]}',
    what,
    f'    fedjax-pfl train --config=digits:{name} --workdir=runs/{name}',
    f'{paper}. Family: [{family(name)}](../methods.md). '
    f'File: `fedjax_pfl/algorithms/{name}.py`.',
    *rest,
    *(f'## {head}\n\n{text}' for head, text in sections.items()),
  ]
  return '\n\n'.join(parts) + '\n'


def body(module: ModuleType, equations: str) -> list[str]:
  """Return the paragraphs of the docstring, with equations in LaTeX."""
  first, *blocks = module.__doc__.strip().split('\n\n')
  sentence = first.partition('): ')[2]
  waiting = equations.strip().split('\n\n') if equations else []
  paragraphs = [sentence[0].upper() + sentence[1:]]
  for block in blocks:
    if block.startswith((f'{NEW_CLIENT}: ', f'{DIFFERS}: ')):
      continue
    if not block.startswith(' '):
      paragraphs.append(symbols(block))
    elif waiting:
      paragraphs.append(latex(waiting.pop(0)))
    else:
      paragraphs.append(fence(textwrap.dedent(block), 'text'))
  return paragraphs


def symbols(text: str) -> str:
  """Return sentences with their symbols in LaTeX: a_i is $a_i$."""

  def symbol(match):
    name = f'\\{match[1]}' if len(match[1]) > 1 else match[1]
    return f'${name}_{{{match[2]}}}$'

  return SYMBOL.sub(symbol, text)


def latex(lines: str) -> str:
  """Return an equation; a line that begins with a space continues its row."""
  rows = lines.replace('\n  ', ' ').replace('\n', ' \\\\\n')
  return f'$$\n\\begin{{aligned}}\n{rows}\n\\end{{aligned}}\n$$'


def traffic(name: str, traced: Sequence[Traced]) -> str:
  """Return the picture, and what the stages of all readings send."""
  module = load(name)
  header = 'stage', 'client keeps', 'upload', 'download', 'once, as it begins'
  rows = [
    (stage.stage + f', {stage.reading}' * bool(stage.reading), *stage.sizes())
    for stage in traced
  ]
  private = ', '.join(f'`{leaf}`' for leaf in module.PRIVATE_LEAVES) or 'none'
  return (
    f'![Layers that travel, and layers that a client keeps]({name}.svg)\n\n'
    f'{markdown(header, rows)}\n\n'
    f'Bytes of `{MODEL}` on CIFAR-10, a client and a round. Leaves that are '
    f'never uploaded, by declaration: {private}. It is FedAvg when: '
    f'{condition(module)}.'
  )


def code(module: ModuleType, traced: Sequence[Traced]) -> str:
  """Return local update and aggregation, and what they call in the file."""
  roots = [
    inspect.unwrap(getattr(stage.algorithm, function))
    for function in ('local_update', 'aggregate')
    for stage in traced
    if not stage.reading
  ]
  shown, size, waiting = {}, 0, [*roots]
  for function in waiting:  # which grows
    key = getattr(function, '__code__', None)
    if key is None or key in shown or function.__name__ in UNSHOWN:
      continue
    source = textwrap.dedent(inspect.getsource(function)).strip()
    size += source.count('\n')
    if size > MOST_LINES and function not in roots:
      break
    shown[key] = function.__module__.replace('.', '/'), source
    waiting += called(function, module)
  return '\n\n'.join(
    f'`{file}.py`:\n\n'
    + fence('\n\n\n'.join(text for f, text in shown.values() if f == file))
    for file in dict.fromkeys(file for file, _ in shown.values())
  )


def called(function: Callable, module: ModuleType) -> list[Callable]:
  """Return the functions of its file or the method's that a function names."""
  files = module.__name__, function.__module__
  names = inspect.getclosurevars(function)
  return [
    value
    for value in (*names.nonlocals.values(), *names.globals.values())
    if inspect.isfunction(value) and value.__module__ in files
  ]


def options(name: str) -> str:
  """Return the table of the method's own hyperparameters."""
  record, rows = load(name).HParams, []
  notes = dict(FIELD.findall(inspect.getsource(record)))
  for field, default in own_defaults(name).items():
    accepts = f'`{type(default).__name__}`'
    if field in record.ruled:
      rule = record.ruled[field].rule
      choices = ', '.join(f'`{choice}`' for choice in rule.choices or ())
      accepts = rule.expected + f': {choices}' * bool(choices)
    first = f'`hp.{field}`', f'`{default!r}`'
    rows.append((*first, accepts, notes.get(field, '')))
  if not rows:
    return f'None of its own. {SHARED}'
  header = 'option', 'default', 'accepts', 'meaning'
  return f'{markdown(header, rows)}\n\n{SHARED}'


def results(numbers: Sequence[Mapping[str, str]]) -> str:
  """Return our numbers beside print, and what is known of the difference."""
  if not numbers:
    return f'No published number of this method was run. {BOARD}'
  header = 'table', 'setting', 'print', "authors' code", 'ours', 'seeds'
  rows, notes = [], {}
  for row in numbers:
    doubts, _, of_code = row['footnote'].partition(CODE_TODAY)
    number = re.match(r'gives ([\d.]+) ', of_code)
    notes[doubts.strip()] = notes['' if number else CODE_TODAY + of_code] = None
    printed, code = row['published_mean'] or 'none', number[1] if number else ''
    ours = row['ours_mean']
    if not ours.isalpha():  # 'diverged'
      ours = f'{float(ours):.2f}'
    rows.append(
      (row['table'], row['setting'], printed, code, ours, row['seeds'])
    )
  shown = [f'- {note}' for note in notes if note not in ('', CODE_TODAY)]
  parts = [RUN, markdown(header, rows), '\n'.join(shown)]
  return '\n\n'.join(parts).strip()


def paragraph(head: str, module: ModuleType) -> str:
  """Return a paragraph of the docstring, as a sentence."""
  _, begun, rest = f'\n{module.__doc__.strip()}'.partition(f'\n{head}: ')
  assert begun, f'{module.__name__}: the docstring has "{head}: "'
  text = rest.partition('\n\n')[0].strip()
  is_word = re.match(r'[a-z]+\b', text)  # and no symbol, such as v_i
  return symbols(text[0].upper() + text[1:] if is_word else text)


def fence(text: str, language: str = 'python') -> str:
  return f'```{language}\n{text}\n```'
