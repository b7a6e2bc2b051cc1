"""Every field of a config as text: docs/settings.md, and --help of commands."""

import textwrap
from collections.abc import Mapping
from typing import Any

from fedjax_pfl.settings.field import EVALUATION, TRAINING, Field
from fedjax_pfl.settings.schema import FIELDS, SECTIONS, Settings

WIDTH = 80
HEADS = ('field', 'default', 'meaning', 'allowed', 'changes')


def as_markdown() -> str:
  """Return docs/settings.md: a table for each section."""
  parts = [
    '# Settings',
    _paragraph(
      'Every field of a config, by its name on the command line '
      '(`--config.num_clients=20`). In Python, `settings.data.num_clients`: '
      'the headings are the sections of `fedjax_pfl.settings.Settings`. This '
      'page is written by `python experiments/settings.py --write`.'
    ),
    _paragraph(
      'The last column tells what a field changes: the numbers of training, '
      'those of evaluation, or none beyond rounding (-). A run directory is '
      'continued only with the config that it was begun with; fields marked '
      '"resumable" may differ.'
    ),
  ]
  for section in ('', *SECTIONS):
    kind = SECTIONS.get(section, Settings)
    rows = [_row(one) for one in FIELDS.values() if one.section == section]
    if section:
      parts.append(f'## {section}')
      parts.append(kind.__doc__.strip())
    else:
      parts.append('## The run')
    parts.append(_table(rows))
  return '\n\n'.join(parts) + '\n'


def as_text() -> str:
  """Return the fields for --help: name, default and meaning, a line or two."""
  lines = ['Fields of a config, as --config.<field>=<value> (default):']
  for section in ('', *SECTIONS):
    lines.append(f'\n{section}:' if section else '')
    for one in FIELDS.values():
      if one.section == section:
        head = f'  {one.name} ({_shown(one.default)})'
        lines += textwrap.wrap(
          f'{head}: {one.help}', WIDTH, subsequent_indent='      '
        )
  return '\n'.join(lines)


def _row(field: Field) -> tuple[str, ...]:
  choices = field.rule.choices
  allowed = field.rule.expected
  if choices and field.name != 'algorithm':
    allowed = ', '.join(f'`{choice}`' for choice in choices)
  changes = [what for what in (TRAINING, EVALUATION) if what in field.changes]
  notes = [*(changes or ['-']), *['resumable'] * field.resumable]
  default = f'`{_shown(field.default)}`'
  return f'`{field.name}`', default, field.help, allowed, ', '.join(notes)


def _shown(value: Any) -> str:
  if isinstance(value, Mapping):
    value = dict(value)
  return repr(value) if value == '' else str(value)


def _table(rows: list[tuple[str, ...]]) -> str:
  ruled = [HEADS, ('---',) * len(HEADS), *rows]
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in row) + ' |'
    for row in ruled
  )


def _paragraph(text: str) -> str:
  return textwrap.fill(text, WIDTH)
