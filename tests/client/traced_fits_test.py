"""The batches of fits, from a trace."""

import jax
from helpers import KEY, TRAIN, build, client_of, make_data

from fedjax_pfl.client.traced_fits import traced_fits
from fedjax_pfl.federated.rounds import begin


def trace(name):
  (stage,), data = build(name), make_data()
  server, clients = begin(stage, data, KEY(1))
  client = jax.tree.map(lambda leaf: leaf[0], clients)
  update = stage.algorithm.local_update
  down = stage.algorithm.download(server, client)
  jax.eval_shape(lambda: update(down, client, client_of(data, 0), KEY(2)))


def test_every_fit_that_is_traced_inside():
  with traced_fits() as found:
    trace('ditto')  # of the global and of the personal model
  assert [one.epochs for one in found] == [TRAIN.epochs] * 2
  trace('fedavg')
  assert len(found) == 2


def test_a_list_inside_of_another():
  with traced_fits() as outer:
    with traced_fits() as inner:
      trace('fedavg')
    assert not outer
  (one,) = inner
  assert one.size == TRAIN.batch_size
