"""Clients on groups of devices, over each of which the model is divided."""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import unchanged
from fedjax_pfl.core.target import compiler_options
from fedjax_pfl.core.types import Array
from fedjax_pfl.federated.cohort import write
from fedjax_pfl.federated.model_axis import Division, dividing
from fedjax_pfl.federated.placement import ONE_DEVICE, OneDevice
from fedjax_pfl.federated.sharding import local_copy, replicated


class OnModelAxis(OneDevice):
  """The program of one device, which the compiler divides over a mesh."""

  def __init__(self, division: Division):
    self.division, self.num_devices = division, division.mesh.size
    self.is_alone = jax.process_count() == 1

  @property
  def num_groups(self):
    return self.division.mesh.devices.shape[0]

  def bytes_of(self, tree):
    return self.division.bytes_of(tree)

  def begin(self, stage, data, key):
    def begin(data, key):
      server, clients = ONE_DEVICE.begin(stage, data, key)
      divide = self.division.divide
      return divide(server), divide(clients, rows=True)

    return self.compile(begin)(data, key)

  def initialize(self, stage, server, clients, data):
    if stage.initialize is unchanged:
      return server, clients
    # On one device: the compiler cannot divide what a host callback returns.
    states = self.whole((server, clients))
    states = jax.device_put(states, jax.local_devices()[0])
    server, clients = stage.initialize(*states, data)
    return self._put(server), self.from_host(clients)

  def whole(self, tree):
    if self.is_alone:
      return tree
    everywhere = NamedSharding(self.division.mesh, Spec())
    gather = jax.jit(lambda leaf: leaf, out_shardings=everywhere)
    return jax.tree.map(lambda leaf: np.asarray(gather(leaf)), tree)

  def to_host(self, clients, num_clients):
    return jax.tree.map(np.asarray, self.whole(clients))

  def from_host(self, clients):
    return self._put(clients, rows=True)

  def compile(self, fn, divided=None, *, reused=()):
    def run(*args):
      with dividing(self.division):
        return fn(*args)

    options = compiler_options()
    compiled = jax.jit(run, compiler_options=options, donate_argnums=reused)

    def call(*args):
      if trees.is_traced(args):
        return run(*args)
      put = lambda number, arg: self._put(arg, rows=number == divided)
      results = compiled(*map(put, range(len(args)), args))
      return results if self.is_alone else jax.tree.map(local_copy, results)

    return call

  def lower(self, fn, *args):
    shapes = self.division.shapes
    shapes = [shapes(arg, rows=number == 1) for number, arg in enumerate(args)]
    with dividing(self.division):
      return jax.jit(lambda *args: fn(*args)).lower(*shapes)

  def _put(self, tree, *, rows=False):
    """Return the arrays on the mesh; those that are there stay as they are."""
    devices = {*self.division.mesh.devices.flat}

    def put(leaf, sharding):
      if isinstance(leaf, Array) and leaf.sharding.device_set == devices:
        return leaf
      if sharding.is_fully_replicated:
        return replicated(leaf, sharding)
      # Of several processes each puts its parts of what all have.
      leaf = leaf if self.is_alone else np.asarray(leaf)
      return jax.device_put(leaf, sharding)

    return jax.tree.map(put, tree, self.division.shardings(tree, rows=rows))

  def writer(self, *, in_place=False):
    put = lambda *args: self.division.divide(write(*args), rows=True)
    return self.compile(put, 0, reused=(0,) * in_place)

  def of_evaluation(self, fn):
    evaluate = self.compile(fn, 1)
    return lambda *args: self.whole(evaluate(*args))

  def describe(self):
    groups, of_each = self.division.mesh.devices.shape
    kind = self.division.mesh.devices.flat[0].device_kind
    return (
      f'{groups} x {of_each} devices ({kind}): a model is divided over '
      f'{of_each}, and {groups} of the clients train at the same time.'
    )
