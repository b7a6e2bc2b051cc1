"""Clients who come after training: what they have, by each method's own rule.

  c <- init_client(server)                     as the server is at the end
  c <- local_update(download(server, c), c)    of round 0; sends nothing
  views of personalize(server, c)

So a client that comes later does what one does in the first round, and the
federation stays as it is: a head is fitted, a personal model begins as the mean
and is trained. It does so at the learning rate of the first round: a schedule
ends low because the server's model has been trained, and a client's own part
has not. Where a method's clients keep nothing between rounds, as those
of FedAvg, the round leaves no trace and is not computed: such a client has the
global model, and personalises it as all others do.
"""

import jax
import jax.numpy as jnp

from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import ClientData, Key


def with_new_clients(stage: Stage) -> Stage:
  """Return the stage by which clients without a state are evaluated."""
  algorithm = stage.algorithm

  def personalize(server, client, data, rng):
    del client
    state = first_state(stage, server, data, rng)
    return algorithm.personalize(server, state, data, rng)

  of_new_clients = algorithm._replace(
    personalize=personalize, init_client=lambda *given: ()
  )
  return stage._replace(algorithm=of_new_clients)


def first_state(
  stage: Stage, server: Server, data: ClientData, rng: Key
) -> Client:
  """Return the state of one client who comes after the last round."""
  algorithm = stage.algorithm
  # `rng` itself is the key of personalisation, as for all other clients.
  begin, train = (jax.random.fold_in(rng, stream) for stream in (1, 2))
  client = algorithm.init_client(server, data, begin)
  if not jax.tree.leaves(client):
    return client
  data = stage.prepare_data(server, data)
  first = server._replace(round=jnp.zeros_like(server.round))
  down = algorithm.download(first, client)
  return algorithm.local_update(down, client, data, train)[0]
