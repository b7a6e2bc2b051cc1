"""The published numbers, and their footnotes.

`published.csv` holds every printed cell, `published.md` its source and how the
file was checked.
"""

import csv
import functools
import pathlib

from fedjax_pfl.reproduction.cells import Published, field
from fedjax_pfl.reproduction.footnotes import GROUPS, Footnote

FILE = pathlib.Path(__file__).with_name('published.csv')


@functools.cache
def load() -> tuple[Published, ...]:
  """Return every printed cell in the order of the file."""
  with open(FILE, newline='') as stream:
    return tuple(_published(row) for row in csv.DictReader(stream))


def footnote(published: Published) -> str:
  """Return the footnote of a published number, or ''."""
  return ' '.join(footnotes_of(published))


def footnotes_of(published: Published) -> tuple[str, ...]:
  """Return the footnotes: of each group, the first that applies."""
  found = []
  for group in GROUPS:
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
