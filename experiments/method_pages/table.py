"""All methods in one table of Markdown: family, page, bytes, what is compared.

The bytes that a client keeps, uploads and downloads are counted in the state
and the messages of the method, traced with its default hyperparameters. Where
the public code of a paper keeps or sends something else than its text, that is
a line of its own.
"""

import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax

from fedjax_pfl.algorithms import load
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import make_task, outline
from fedjax_pfl.results.tables.table import markdown

MODEL, IMAGE, NUM_CLASSES, NUM_CLIENTS = 'convnet4', (32, 32, 3), 10, 100
FAMILIES = ('global', 'shared parts', 'regularised', 'mixtures', 'clusters')
HEADER = ('method', 'family', 'paper', 'client keeps', 'upload', 'download')
HEADER += ('is FedAvg when', 'golden cases')
TITLE = re.compile(r'(?P<name>[^(]+) \((?P<paper>.+?)\): (?P<sentence>.+)')


class Traced(NamedTuple):
  """One stage of one reading of a method; its messages are shapes."""

  reading: str  # '' of the paper
  algorithm: Any
  stage: str
  messages: communication.Messages

  def sizes(self) -> tuple[str, ...]:
    """Return what a client keeps, uploads and downloads, and that of once."""
    return tuple(map(in_kilobytes, communication.sizes_of(self.messages)))


def small_model() -> tuple[Task, Params]:
  """Return the task with which methods are traced, and its model's shapes."""
  size = {'image_shape': IMAGE, 'num_classes': NUM_CLASSES}
  task = make_task(MODEL, **size)
  return outline(task), jax.eval_shape(task.init, jax.random.key(0))


def trace(name: str, task: Task) -> list[Traced]:
  """Return the stages of all readings of a method that send different bytes."""
  module, traced, seen = load(name), [], []
  readings = {'': module.HParams()}
  if hasattr(readings[''], 'protocol'):
    for protocol in module.HParams.ruled['protocol'].rule.choices:
      if protocol != readings[''].protocol:
        readings[protocol] = module.HParams(protocol=protocol)
  data = shapes_of_clients(Shape(IMAGE, NUM_CLASSES), NUM_CLIENTS, 100)
  for reading, hp in readings.items():
    stages = []
    for stage, *states in stage_shapes(module.build(task, hp), data):
      sent = communication.messages(stage, *states, data)
      stages.append(Traced(reading, stage.algorithm, stage.name, sent))
    sizes = [stage.sizes() for stage in stages]
    if sizes not in seen:
      seen.append(sizes)
      traced += stages
  return traced


def method_table(
  traced: Mapping[str, Sequence[Traced]], origins: Mapping[str, str]
) -> str:
  """Return the table in Markdown; origins: of the golden cases, by method."""

  def order(name):
    return [*FAMILIES, family(name)].index(family(name)), family(name), name

  rows = []
  for name in sorted(traced, key=order):
    title, method = title_of(name), load(name)
    # The last stage of each reading.
    for reading, last in {x.reading: x for x in traced[name]}.items():
      label = f', {reading}' if reading else ''
      link = f'[{title["name"]}](methods/{name}.md){label}'
      first, sizes = (link, family(name), title['paper']), last.sizes()[:3]
      when = condition(method)
      rows.append((*first, *sizes, when, origins[name]))
  return markdown(HEADER, rows)


def family(name: str) -> str:
  return getattr(load(name), 'FAMILY', 'others')


def title_of(name: str) -> re.Match:
  title = TITLE.match(load(name).__doc__)
  assert title, f'{name}: the docstring begins with "Name (paper): ..."'
  return title


def in_kilobytes(num_bytes: int) -> str:
  if 0 < num_bytes < 50:
    return f'{num_bytes} B'
  return f'{num_bytes / 1000:,.1f} kB' if num_bytes else 'nothing'


def condition(method: ModuleType) -> str:
  """Return the hyperparameters with which the method is FedAvg, and where."""
  if method.FEDAVG_EQUIVALENT is None:
    return 'never'
  items = method.FEDAVG_EQUIVALENT.items()
  settings = ', '.join(f'`{name}={value!r}`' for name, value in items)
  where = getattr(method, 'FEDAVG_WHERE', '')
  return (settings or 'always') + f' ({where})' * bool(where)
