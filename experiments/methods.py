"""Print the table of all methods; --write puts it into docs/methods.md.

  python experiments/methods.py [--write]

What a client keeps, uploads and downloads is counted in the state and the
messages of the method itself, traced with its default hyperparameters; nothing
of it is typed in. Where the public code of a paper keeps or sends something
else than its text, that is a line of its own.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import app, flags, logging

PAGE = Path(__file__).parents[1] / 'docs' / 'methods.md'
WRITE = flags.DEFINE_bool('write', False, 'Replace the table in the docs.')
MODEL, IMAGE, NUM_CLASSES, CLIENTS = 'convnet4', (32, 32, 3), 10, 100
HEADER = (
  'method',
  'paper',
  'file',
  'client keeps',
  'upload',
  'download',
  'is FedAvg when',
)
BEGIN, END = '<!-- methods: experiments/methods.py -->', '<!-- end -->'
TITLE = re.compile(r'(?P<name>[^(]+) \((?P<paper>.+?)\): ')


def make_table() -> str:
  """Return the table in Markdown."""
  from fedjax_pfl.algorithms import available

  lines = [HEADER, ('---',) * len(HEADER)]
  for name in available():
    lines += rows(name)
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def rows(name: str) -> Iterator[tuple[str, ...]]:
  """Yield the lines of one method: one for each reading that differs."""
  from fedjax_pfl.algorithms import load
  from fedjax_pfl.core.algorithm import PROTOCOLS

  module = load(name)
  title = TITLE.match(module.__doc__)
  assert title, f'{name}: the docstring begins with "Name (paper): ..."'
  hp = module.HParams()
  readings = (None,)
  if hasattr(hp, 'protocol'):
    readings = getattr(module, 'PROTOCOLS', PROTOCOLS)
  seen = set()
  for protocol in readings:
    chosen = hp if protocol is None else hp._replace(protocol=protocol)
    cells = tuple(map(describe, message_sizes(module.build(task(), chosen))))
    if cells in seen:
      continue
    label = f', {protocol}' if seen else ''
    seen.add(cells)
    yield (
      title['name'] + label,
      title['paper'],
      f'`algorithms/{name}.py`',
      *cells,
      condition(module.FEDAVG_EQUIVALENT),
    )


def task():
  from fedjax_pfl.models.task import make_task

  return make_task(
    MODEL,
    image_shape=IMAGE,
    num_classes=NUM_CLASSES,
    conv_impl='lax',  # traced in half the time; bytes are the same
  )


def message_sizes(stages) -> tuple[int, int, int]:
  """Return the bytes that a client keeps, uploads and downloads a round."""
  import jax

  from fedjax_pfl.core.types import ClientData
  from fedjax_pfl.federated import communication
  from fedjax_pfl.federated.rounds import stage_shapes

  def shape(*sizes, dtype='int32'):
    return jax.ShapeDtypeStruct(sizes, dtype)

  pool = shape(1, *IMAGE, dtype='uint8'), shape(1)
  data = ClientData(*pool, shape(CLIENTS, 100), shape(CLIENTS))
  *_, (stage, server, clients) = stage_shapes(stages, data)

  sizes = communication.count(stage, server, clients, data)
  return sizes.state, sizes.up, sizes.down


def describe(num_bytes: int) -> str:
  return f'{num_bytes / 1000:,.1f} kB' if num_bytes else 'nothing'


def condition(hyperparameters: dict | None) -> str:
  if hyperparameters is None:
    return 'never'
  settings = [f'`{name}={value!r}`' for name, value in hyperparameters.items()]
  return ', '.join(settings) or 'always'


def split_page() -> tuple[str, str, str]:
  """Return docs/methods.md before, in and after the place of the table."""
  text = PAGE.read_text(encoding='utf-8')
  before, found, rest = text.partition(BEGIN)
  table, also_found, after = rest.partition(END)
  assert found and also_found, f'{PAGE} has no {BEGIN} ... {END}'
  return before, table, after


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)
  table = make_table()
  if not WRITE.value:
    print(table)
    return
  before, _, after = split_page()
  text = f'{before}{BEGIN}\n{table}\n{END}{after}'
  PAGE.write_text(text, encoding='utf-8')


if __name__ == '__main__':
  app.run(main)
