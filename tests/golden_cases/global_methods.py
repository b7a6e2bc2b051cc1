"""Methods with one global model that are not of the first three papers."""

from functools import partial

from golden_cases.methods import check_method
from golden_cases.rounds import Replay, build, replay


def check_feddyn(case):
  """The released form weighs by examples: its stage counts them first."""
  algorithm = build(case, 'feddyn', ('alpha', 'protocol'))
  train, _ = case.data()

  def init_server(key):
    server = algorithm.init_server(key)
    return server._replace(mean_count=train.count.mean())

  how = Replay(
    steps=lambda update: {}, kept=lambda drift, up: {'drift/{0}/{1}': drift}
  )
  replay(case, algorithm._replace(init_server=init_server), how)


CHECKS = {
  'fedntd': partial(
    check_method, name='fedntd', fields=('beta', 'temperature')
  ),
  'fednova': partial(check_method, name='fednova'),
  'feddyn': check_feddyn,
  'knn_per': partial(
    check_method,
    name='knn_per',
    fields=('lam', 'neighbours', 'scale'),
    views={'neighbours': 'neighbours'},
  ),
}
