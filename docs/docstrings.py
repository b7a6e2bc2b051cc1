"""Docstrings as the site shows them: equations and examples as code."""

import re
import textwrap

import griffe

SECTION = re.compile(r'^(Args|Returns):$')
ALIGNED = re.compile(r'^ +|\S {3,}\S', re.MULTILINE)


class Docstrings(griffe.Extension):
  def on_instance(self, *, obj, **kwargs):
    if obj.docstring:
      obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text):
  """Return a docstring in which griffe and Markdown find what is meant.

  Examples become a section, what is returned a paragraph, and indented
  paragraphs, which are equations and tables, code.
  """
  blocks, section = [], ''
  for block in re.split(r'\n\s*\n', text.strip('\n')):
    if block.startswith('>>>'):
      block = 'Examples:\n' + textwrap.indent(block, '    ')
    elif not block.startswith(' '):
      section = ''
      if head := SECTION.match(block.partition('\n')[0]):
        section = head[1]
      if section == 'Returns':
        block = f'**Returns:** {returned(block)}'
    elif section != 'Args':
      block = shown(block)
    blocks.append(block)
  return '\n\n'.join(blocks)


def returned(block):
  """Return what follows 'Returns:', as code if it is aligned by hand."""
  return shown(textwrap.dedent(block.partition('\n')[2])).lstrip()


def shown(block):
  """Return a paragraph, fenced where its lines are aligned by hand."""
  if ALIGNED.search(block):
    return f'\n```text\n{textwrap.dedent(block)}\n```'
  return block
