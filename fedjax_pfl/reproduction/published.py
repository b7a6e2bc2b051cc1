"""The published numbers, and their footnotes.

`published.csv` holds every printed cell, `published.md` its source and how the
file was checked, `footnotes.toml` the doubts about some.
"""

import csv
import functools
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedjax_pfl.reproduction.cells import Published, field

FILE = pathlib.Path(__file__).with_name('published.csv')
FOOTNOTES = FILE.with_name('footnotes.toml')


class Footnote(NamedTuple):
  """A sentence about the cells whose fields, or variants, have these values."""

  where: Mapping[str, list[Any]]
  text: str


@functools.cache
def load() -> tuple[Published, ...]:
  """Return every printed cell in the order of the file."""
  with open(FILE, newline='') as stream:
    return tuple(_published(row) for row in csv.DictReader(stream))


@functools.cache
def load_footnotes() -> tuple[tuple[Footnote, ...], ...]:
  """Return the groups of footnotes: a cell has the first of each."""
  groups = tomllib.loads(FOOTNOTES.read_text(encoding='utf-8'))
  return tuple(
    tuple(Footnote(**note) for note in group) for group in groups.values()
  )


def footnote(published: Published) -> str:
  """Return the footnote of a published number, or ''."""
  return ' '.join(footnotes_of(published))


def footnotes_of(published: Published) -> tuple[str, ...]:
  """Return the footnotes: of each group, the first that applies."""
  found = []
  for group in load_footnotes():
    texts = (note.text for note in group if _applies(note, published))
    found.append(next(texts, ''))
  return tuple(filter(None, found))


def _published(row: dict[str, str]) -> Published:
  numbers = {
    name: kind(row[name]) if row[name] else None
    for name, kind in (
      ('num_clients', int),
      ('shards_per_client', int),
      ('client_fraction', float),
      ('local_epochs', int),
      ('std', float),
    )
  }
  pairs = row['variant'].split(';') if row['variant'] else ()
  variant = dict(pair.split('=', 1) for pair in pairs)
  mean = float(row['mean'])
  return Published(**{**row, **numbers, 'variant': variant, 'mean': mean})


def _applies(note: Footnote, published: Published) -> bool:
  return all(
    field(published, name) in values for name, values in note.where.items()
  )
