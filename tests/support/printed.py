"""The tables of the papers: each is made once in a process, in a tenth of a
second. Nothing that reads them changes them."""

import functools

from configs.tables import common

load_table = functools.cache(common.load_table)


@functools.cache
def load_cells():
  return [
    cell for name in common.available() for cell in load_table(name).cells
  ]
