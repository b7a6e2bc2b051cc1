"""Tables of all methods in Markdown: paper, file, bytes; new clients.

The bytes that a client keeps, uploads and downloads are counted in the state
and the messages of the method, traced with its default hyperparameters. Where
the public code of a paper keeps or sends something else than its text, that is
a line of its own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedjax_pfl.algorithms import available, load
from fedjax_pfl.analysis.communication_budget import data_shapes
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Task
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import make_task

MODEL, IMAGE, NUM_CLASSES, NUM_CLIENTS = 'convnet4', (32, 32, 3), 10, 100
HEADER = (
  'method',
  'paper',
  'file',
  'client keeps',
  'upload',
  'download',
  'is FedAvg when',
  'golden cases',
)
NEW_CLIENT = re.compile(r'^New client: (?P<text>.+?)\n\n', re.M | re.S)
TITLE = re.compile(r'(?P<name>[^(]+) \((?P<paper>.+?)\): ')


def method_table(origins: Mapping[str, str]) -> str:
  """Return the table in Markdown; origins: of the golden cases, by method."""
  task = make_task(
    MODEL,
    image_shape=IMAGE,
    num_classes=NUM_CLASSES,
    conv_impl='lax',  # traced in half the time; bytes are the same
  )
  rows = [
    (*row, origins[name]) for name in available() for row in rows_of(name, task)
  ]
  return as_markdown(HEADER, rows)


def new_client_table() -> str:
  """Return what a client does that comes after training, by method."""
  rows = []
  for name in available():
    found = NEW_CLIENT.search(load(name).__doc__)
    assert found, f'{name}: the docstring has "New client: ..."'
    sentence = ' '.join(found['text'].split())
    rows.append((title_of(name)['name'], sentence[0].lower() + sentence[1:]))
  return as_markdown(('method', 'a new client'), rows)


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  lines = [header, ('---',) * len(header), *rows]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def title_of(name: str) -> re.Match:
  found = TITLE.match(load(name).__doc__)
  assert found, f'{name}: the docstring begins with "Name (paper): ..."'
  return found


def rows_of(name: str, task: Task) -> Iterator[tuple[str, ...]]:
  """Yield the lines of one method: one for each reading that differs."""
  module, title = load(name), title_of(name)
  readings = {'': module.HParams()}
  if hasattr(readings[''], 'protocol'):
    readings = {
      protocol: readings['']._replace(protocol=protocol)
      for protocol in module.RULES['protocol'].choices
    }
  seen = set()
  for protocol, hp in readings.items():
    cells = tuple(map(in_kilobytes, message_sizes(module.build(task, hp))))
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


def message_sizes(stages: Sequence[Stage]) -> tuple[int, int, int]:
  """Return the bytes that a client keeps, uploads and downloads a round."""
  data = data_shapes(IMAGE, 'uint8', NUM_CLIENTS, 100)
  *_, (stage, server, clients) = stage_shapes(stages, data)
  sizes = communication.count(stage, server, clients, data)
  return sizes.state, sizes.up, sizes.down


def in_kilobytes(num_bytes: int) -> str:
  return f'{num_bytes / 1000:,.1f} kB' if num_bytes else 'nothing'


def condition(hyperparameters: Mapping[str, Any] | None) -> str:
  """Return the hyperparameters with which the method is FedAvg."""
  if hyperparameters is None:
    return 'never'
  settings = [f'`{name}={value!r}`' for name, value in hyperparameters.items()]
  return ', '.join(settings) or 'always'
