"""Stages in which numbers are no constants: the server carries them.

  server  = Numbered(the method's own server, numbers)
  f(server, ..) = f of build(task, hp with these numbers)(the own server, ..)

for every function f of a method that a round or an evaluation is made of. One
compiled program then runs settings that differ in these numbers alone, as it
runs seeds. What a method computes without its server, as `predict`, may decide
by a number (traced_number.py), but not compute with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fedjax_pfl.core import algorithm as own
from fedjax_pfl.core.algorithm import Algorithm, Down, Server, Stage
from fedjax_pfl.core.traced_number import TracedNumber
from fedjax_pfl.core.types import Array

Numbers = dict[str, Array]  # {'learning_rate': [], 'hp.mu': []}
StagesOf = Callable[[Mapping[str, TracedNumber]], tuple[Stage, ...]]


class Numbered(NamedTuple):
  """A server, or what it sends, with the numbers of its setting."""

  content: Server | Down
  numbers: Numbers

  @property
  def round(self) -> Array:
    return self.content.round


def number_stages(
  stages_of: StagesOf, values: Mapping[str, tuple[float, ...]]
) -> tuple[Stage, ...]:
  """Return stages whose servers and downloads are Numbered.

  `stages_of` builds the method's own; `values` {name: (number of each setting,
  ..)} are those of all settings that share the programs. A run begins with
  stages of its own: these have no `init_server`.
  """

  def stage_at(place: int, numbers: Numbers) -> Stage:
    return stages_of(
      {name: TracedNumber(values[name], numbers[name]) for name in values}
    )[place]

  outlines = stages_of({name: TracedNumber(values[name]) for name in values})
  return tuple(
    _number(outline, partial(stage_at, place))
    for place, outline in enumerate(outlines)
  )


def with_round(server: Server, number: Array) -> Server:
  """Return the server with another clock, whether it carries numbers or not."""
  if isinstance(server, Numbered):
    return Numbered(with_round(server.content, number), server.numbers)
  return server._replace(round=number)


def content_of(server: Server) -> Server:
  """Return the server without numbers, if it carries any."""
  return server.content if isinstance(server, Numbered) else server


def _number(outline: Stage, stage_of: Callable[[Numbers], Stage]) -> Stage:
  def initialize(server, clients, data):
    numbers = server.numbers
    states = stage_of(numbers).initialize(server.content, clients, data)
    return Numbered(states[0], numbers), states[1]

  def prepare_data(server, data):
    return stage_of(server.numbers).prepare_data(server.content, data)

  def initial_broadcast(server):
    return stage_of(server.numbers).initial_broadcast(server.content)

  functions = {'algorithm': _number_algorithm(outline.algorithm, stage_of)}
  # Others ask whether a stage has functions of its own.
  if outline.initialize is not own.unchanged:
    functions['initialize'] = initialize
  if outline.prepare_data is not own.as_stored:
    functions['prepare_data'] = prepare_data
  if outline.initial_broadcast is not own.nothing:
    functions['initial_broadcast'] = initial_broadcast
  return outline._replace(**functions)


def _number_algorithm(
  outline: Algorithm, stage_of: Callable[[Numbers], Stage]
) -> Algorithm:
  def of(numbers: Numbers) -> Algorithm:
    return stage_of(numbers).algorithm

  def init_client(server, data, key):
    return of(server.numbers).init_client(server.content, data, key)

  def download(server, client):
    down = of(server.numbers).download(server.content, client)
    return Numbered(down, server.numbers)

  def local_update(down, client, data, key):
    return of(down.numbers).local_update(down.content, client, data, key)

  def aggregate(server, up, senders):
    new = of(server.numbers).aggregate(server.content, up, senders)
    return Numbered(new, server.numbers)

  def post_aggregate(server, data, key):
    new = of(server.numbers).post_aggregate(server.content, data, key)
    return Numbered(new, server.numbers)

  def personalize(server, client, data, key):
    return of(server.numbers).personalize(server.content, client, data, key)

  def global_model(server):
    return of(server.numbers).global_model(server.content)

  return outline._replace(
    init_server=_begin,
    init_client=init_client,
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    post_aggregate=post_aggregate,
    personalize=personalize,
    global_model=global_model if outline.global_model else None,
  )


def _begin(*args):
  raise AssertionError('a run begins with stages of its own')
