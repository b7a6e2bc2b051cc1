"""Every field of a config as text: docs/settings.md, and --help of commands."""

import textwrap
from collections.abc import Mapping
from typing import Any

from fedjax_pfl.core import user_code
from fedjax_pfl.core.records import EVALUATION, TRAINING, Field
from fedjax_pfl.settings.schema import FIELDS, SECTIONS

WIDTH = 80
HEADS = ('field', 'default', 'meaning', 'allowed', 'changes')
INTRODUCTION = (
  'Every field of a config, by its name on the command line '
  '(`--config.num_clients=20`). In Python, `settings.data.num_clients`: the '
  'headings are the sections of `fedjax_pfl.settings.Settings`. This page is '
  'written by `fedjax-pfl settings --write`.',
  'The last column tells what a field changes: the numbers of training, those '
  'of evaluation, or none beyond rounding (-). A run directory is continued '
  'only with the config that it was begun with; fields marked "resumable" may '
  'differ.',
)


def as_markdown() -> str:
  """Return docs/settings.md: a table for each section."""
  parts = ['# Settings', *(textwrap.fill(text, WIDTH) for text in INTRODUCTION)]
  for section, fields in _by_section().items():
    parts.append(f'## {section or "The run"}')
    if section:
      parts.append(SECTIONS[section].__doc__.partition('\n')[0])
    rows = [HEADS, ('---',) * len(HEADS), *map(_row, fields)]
    lines = [[cell.replace('|', '\\|') for cell in row] for row in rows]
    parts.append('\n'.join(f'| {" | ".join(line)} |' for line in lines))
  return '\n\n'.join(parts) + '\n'


def as_text() -> str:
  """Return the fields for --help: name, default and meaning, a line or two."""
  lines = ['Fields of a config, as --config.<field>=<value> (default):']
  for section, fields in _by_section().items():
    lines.append(f'\n{section}:' if section else '')
    for field in fields:
      text = f'  {field.name} ({_shown(field.default)}): {_meaning(field)}'
      lines += textwrap.wrap(text, WIDTH, subsequent_indent='      ')
  return '\n'.join(lines)


def _by_section() -> dict[str, list[Field]]:
  return {
    section: [field for field in FIELDS.values() if field.section == section]
    for section in ('', *SECTIONS)
  }


def _row(field: Field) -> tuple[str, ...]:
  choices, allowed = field.rule.choices, field.rule.expected
  if choices and field.name != 'algorithm':
    code = [user_code.FORM] * (field.name in user_code.FIELDS)
    allowed = ', '.join(f'`{choice}`' for choice in (*choices, *code))
  changes = [what for what in (TRAINING, EVALUATION) if what in field.changes]
  notes = [*(changes or ['-']), *['resumable'] * field.resumable]
  default = f'`{_shown(field.default)}`'
  return f'`{field.name}`', default, _meaning(field), allowed, ', '.join(notes)


def _meaning(field: Field) -> str:
  """Return its line of help, and the field without which it does nothing."""
  if field.needs is None:
    return field.help
  main, value = field.needs
  return f'{field.help} (needs {main}{f"={value}" * field.only})'


def _shown(value: Any) -> str:
  value = dict(value) if isinstance(value, Mapping) else value
  return repr(value) if value == '' else str(value)
