"""FedRep: what its cases do not say."""

import pytest
from helpers import FINETUNE, TRAIN, assert_close, build, make_data, play

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated.rounds import stage_shapes

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()


def test_without_a_phase_of_the_head_it_is_fedbabu(float64):
  hp = {'body_epochs': TRAIN.epochs, 'momentum': TRAIN.momentum}
  want, _, _ = play(build('fedbabu'), DATA, rounds=3)
  got, clients, _ = play(build('fedrep', head_epochs=0, **hp), DATA, rounds=3)
  assert_close(got.params, want.params)
  assert trees.leaf_names(clients) == ['head/bias', 'head/kernel']


def test_only_the_papers_reading_is_seen_at_each_number_of_epochs():
  assert FINETUNE.epochs == (1, 2)
  names = {}
  for protocol in ('paper', 'released'):
    ((stage, *states),) = stage_shapes(build('fedrep', protocol=protocol), DATA)
    names[protocol] = set(view_names(stage.algorithm, *states, DATA))
  assert names['paper'] == {'initial', 'finetuned_1', 'finetuned'}
  assert names['released'] == {'initial', 'finetuned'}


@pytest.mark.parametrize(
  'hp, sentence',
  [
    ({'head_epochs': -1}, r'hp\.head_epochs: got -1.*0 or more'),
    ({'head_epochs': 0.5}, r'hp\.head_epochs: got 0\.5.*a fraction'),
    ({'body_epochs': 0}, r'hp\.body_epochs: got 0.*never learn'),
    ({'momentum': 1.0}, r'hp\.momentum: got 1\.0.*below 1'),
    ({'protocol': 'code'}, r"hp\.protocol: got 'code'.*paper, released"),
  ],
)
def test_bad_hyperparameters_are_refused(hp, sentence):
  with pytest.raises(BadInput, match=sentence):
    build('fedrep', **hp)
