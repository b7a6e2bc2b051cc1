"""Clients of different architectures in the rounds of one method.

  w_i of client i has the architecture g(i); the method of a group g is built
  with the model of g:

  server  (s_1, .., s_G)   a state of each group
  client  (g(i), its states by group, of which it uses that of g(i))
  up      of any group, of one shape: all of a cohort go to every s_g

So a method works if what clients receive and send does not depend on the
architecture: class means, class logits, a head, a small model beside the own
one. Where it averages whole models it is refused.

A round is one compiled program. A client's update is a branch of it, so that it
costs what its own architecture costs where clients of a chunk run one by one;
`clients_per_chunk` is 1 therefore. Each client has room for the states of all
groups, so that all clients have states of one shape.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import PyTreeDef

from fedjax_pfl.core import named_file, rules, trees
from fedjax_pfl.core.algorithm import Algorithm, OneOf, Stage
from fedjax_pfl.core.errors import bad_input, may_read
from fedjax_pfl.core.records import field, path, record
from fedjax_pfl.core.rules import count
from fedjax_pfl.core.types import Array, ClientData, PyTree
from fedjax_pfl.core.user_code import (
  FORM,
  call,
  describe,
  is_code,
  value_of,
  without_digest,
)
from fedjax_pfl.data.client_data import client_of
from fedjax_pfl.models.registry import MODELS

CYCLIC = 'cyclic'


@record()
class Architectures:
  """Groups of clients with a model each, in the place of one model.

  Args:
    models: architectures of groups of clients, the first of which is `model`
    model_of_client: cyclic: clients take the models in turn; or a text file
      with the model of each client; or a function of your own, FILE.py:NAME:
      (num_clients, models) -> the name of each client's
    feature_width: features of each model are pooled to this number; 0: they
      stay as they are
  """

  models: tuple[str, ...] = field(
    (),
    rules.tuple_of(
      lambda name: name in MODELS or is_code(name),
      f'known models ({", ".join(MODELS)}), or your own as {FORM}',
      'a single one: that is the field `model`',
    ),
  )
  model_of_client: str = field(
    CYCLIC,
    path(f'cyclic, a text file with the model of each client, or {FORM}'),
    stored=lambda name: (
      name if name == CYCLIC or is_code(name) else named_file.with_digest(name)
    ),
    needs=('models', 'simple_cnn,superfed_cnn'),
  )
  feature_width: int = field(0, count('features', smallest=0))

  def of_clients(self, num_clients: int) -> np.ndarray:
    """Return the group of each client: [K], from 0 to G - 1."""
    if self.model_of_client == CYCLIC:
      groups = np.arange(num_clients) % len(self.models)
    else:
      groups = self._named(num_clients)
    for group in set(range(len(self.models))) - {*groups.tolist()}:
      raise bad_input(
        'models',
        got=f'{without_digest(self.models[group])}, which no client has',
        expected=f'at most {num_clients} models, each of a client',
        cause='fewer clients than models, or a file or function without this '
        'one',
      )
    return groups

  def _named(self, num_clients: int) -> np.ndarray:
    """Return the groups that a file, or a function of the user's, names."""
    # Names of code have their digest here; users type none.
    known = {without_digest(name): at for at, name in enumerate(self.models)}
    source, kind = self.model_of_client, 'a text file'
    if is_code(source):
      kind = 'a function of (num_clients, models) that returns a list'
      names, summary = _from_code(source, num_clients, tuple(known))
    else:
      names, summary = _from_file(source)
    strange = [name for name in names if name not in known]
    if len(names) == num_clients and not strange:
      return np.array([known[name] for name in names])
    raise bad_input(
      'model_of_client',
      got=f'{source.partition("#")[0]}: {strange[0] if strange else summary}',
      expected=f'{kind} of {num_clients} names, one of each client that takes '
      'part',
      choices=known,
      cause='a model that `models` does not name, or another number of clients',
    )


def _from_code(
  name: str, num_clients: int, models: tuple[str, ...]
) -> tuple[list[str], str]:
  """Return the names that the user's function gives, and what it returned."""
  assign = value_of('model_of_client', name)
  made = call(
    'model_of_client',
    lambda: assign(num_clients, models),
    of=assign,
    cause='other arguments than (num_clients, models)',
  )
  if isinstance(made, str) or not np.iterable(made):
    return [], describe(made)
  names = [*map(str, made)]
  return names, f'{len(names)} names'


def _from_file(name: str) -> tuple[list[str], str]:
  """Return the names of a file, and what was found there."""
  try:
    with may_read('model_of_client'):
      _, text = named_file.read('model_of_client', name)
  except (OSError, ValueError) as error:
    return [], str(error)
  names = text.replace(',', ' ').split()
  return names, f'{len(names)} names'


class Form(NamedTuple):
  """A group's message as a structure; its leaves are sent by their paths."""

  names: tuple[str, ...]
  structure: PyTreeDef

  def message(self, leaves: dict[str, Array]) -> PyTree:
    """Return what the method of the group knows."""
    return self.structure.unflatten([leaves[name] for name in self.names])


class Forms(NamedTuple):
  down: Form
  up: Form


class Server(NamedTuple):
  round: Array
  of_groups: tuple[PyTree, ...]


def mixed(
  stages: Sequence[Stage], of_client: np.ndarray, forms: Sequence[Forms]
) -> Stage:
  """Join the stages of G architectures; client k uses `of_client[k]`."""
  first, methods = stages[0], [stage.algorithm for stage in stages]

  def joined(servers):
    return Server(servers[0].round, tuple(servers))

  def branch(group, make: Callable[[int, Algorithm], Callable]):
    """Return what the method of this group does."""
    return lax.switch(group, [make(g, m) for g, m in enumerate(methods)])

  def init_server(rng):
    return joined([method.init_server(rng) for method in methods])

  def init_client(server, data, rng):
    # A client that comes later has the first architecture.
    states = (
      method.init_client(state, data, rng)
      for method, state in zip(methods, server.of_groups, strict=True)
    )
    return OneOf(jnp.zeros((), jnp.int32), tuple(states))

  def initialize(server, clients, data):
    states = zip(stages, server.of_groups, clients.of_groups, strict=True)
    begun = [stage.initialize(s, c, data) for stage, s, c in states]
    servers, rows = zip(*begun, strict=True)
    group = jnp.asarray(of_client, jnp.int32)
    return joined(servers), OneOf(group, rows)

  def download(server, client):
    def down(group, method):
      state, row = server.of_groups[group], client.of_groups[group]
      return lambda: trees.named(method.download(state, row))

    return branch(client.group, down)

  def local_update(down, client, data, rng):
    def update(group, method):
      def run():
        row, received = client.of_groups[group], forms[group].down.message(down)
        row, up, metrics = method.local_update(received, row, data, rng)
        return client.with_own(group, row), trees.named(up), metrics

      return run

    return branch(client.group, update)

  def aggregate(server, up, senders):
    of_groups = zip(methods, server.of_groups, forms, strict=True)
    return joined([
      method.aggregate(state, form.up.message(up), senders)
      for method, state, form in of_groups
    ])  # fmt: skip

  def respond(server, rows, up, senders):
    for group, method in enumerate(methods):
      before, is_own = rows.of_groups[group], rows.group == group
      sent = forms[group].up.message(up)
      answer = method.respond(server.of_groups[group], before, sent, senders)
      kept = jax.vmap(trees.choose)(is_own, answer, before)
      rows = rows.with_own(group, kept)
    return rows

  def personalize(server, client, data, rng):
    def views(group):
      state, row = server.of_groups[group], client.of_groups[group]
      return methods[group].personalize(state, row, data, rng)

    groups = range(len(methods))
    shapes = [jax.eval_shape(partial(views, group)) for group in groups]
    empty = [*map(trees.zeros, shapes)]

    def of_group(group, method):
      def run():
        rows = [*empty[:group], views(group), *empty[group + 1 :]]
        return {
          name: OneOf(client.group, tuple(models[name] for models in rows))
          for name in rows[0]
        }

      return run

    return branch(client.group, of_group)

  def predict(view, x, mask):
    def logits(group, method):
      return lambda: method.predict(view.of_groups[group], x, mask)

    return branch(view.group, logits)

  of_first = lambda server: server.of_groups[0]
  algorithm = methods[0]._replace(
    init_server=init_server,
    init_client=init_client,
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    personalize=personalize,
    predict=predict,
    respond=methods[0].respond and respond,
    global_model=None,
  )
  return first._replace(
    algorithm=algorithm,
    initialize=initialize,
    prepare_data=lambda server, data: first.prepare_data(
      of_first(server), data
    ),
    initial_broadcast=lambda server: first.initial_broadcast(of_first(server)),
  )


def message_forms(
  stages: Sequence[Stage],
  names: Sequence[str],
  data: ClientData,
  works: Sequence[str],
) -> list[Forms]:
  """Return the forms; refuse messages that depend on the architecture.

  `stages` may have outlines of models, of these `names`, and `data` be shapes;
  `works` are the methods that work, for the sentence.
  """

  def messages(stage: Stage, data: ClientData) -> tuple[PyTree, ...]:
    method, key = stage.algorithm, jax.random.key(0)
    server = method.init_server(key)
    data_of_one = client_of(stage.prepare_data(server, data), 0)
    client = method.init_client(server, data_of_one, key)
    down = method.download(server, client)
    _, up, metrics = method.local_update(down, client, data_of_one, key)
    return down, up, metrics, stage.initial_broadcast(server)

  shapes = [jax.eval_shape(partial(messages, stage), data) for stage in stages]
  for name, sent, stage in zip(names, shapes, stages, strict=True):
    if _leaves(sent) != _leaves(shapes[0]) or stage.keep_best:
      raise bad_input(
        'models',
        got=f'{names[0]} and {name}, whose clients receive or send other '
        f'arrays in the rounds of {stage.name}',
        expected='a method whose messages do not depend on the architecture, '
        'and features of one width',
        choices=[f'algorithm={method}' for method in works]
        + ['feature_width=64'],
        cause='a method that averages whole models or keeps the best ones, or '
        'models whose features have other widths',
      )
  return [Forms(*map(_form_of, sent[:2])) for sent in shapes]


def _form_of(tree: PyTree) -> Form:
  return Form(tuple(trees.leaf_names(tree)), jax.tree.structure(tree))


def _leaves(tree: PyTree) -> dict[str, tuple]:
  """Return name, shape and dtype of every leaf."""
  named = trees.named(tree)
  return {name: (leaf.shape, leaf.dtype) for name, leaf in named.items()}
