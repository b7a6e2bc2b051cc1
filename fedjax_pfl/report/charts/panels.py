"""A chart with its title and caption, for the page and for a file."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup


class Key(NamedTuple):
  """A line of a legend, with the last of its numbers."""

  sample: Markup
  label: str
  value: str


class Panel(NamedTuple):
  title: str
  svg: Markup
  note: str = ''
  keys: tuple[Key, ...] = ()
  is_wide: bool = False
  is_small: bool = False  # one of many, drawn in a third of the page
  css: str = ''  # of the method shown


class Section(NamedTuple):
  title: str
  text: str
  panels: Sequence[Panel]
