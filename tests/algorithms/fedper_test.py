"""FedPer: what its cases do not say."""

import pytest
from helpers import build, make_data, play

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput

pytestmark = pytest.mark.usefixtures('quick_compiler')
DATA = make_data()


def test_a_client_keeps_its_head_and_nothing_else():
  _, clients, _ = play(build('fedper'), DATA, rounds=0)
  assert trees.leaf_names(clients) == ['head/bias', 'head/kernel']
  _, clients, _ = play(build('fedper', protocol='released'), DATA, rounds=0)
  assert trees.num_bytes(clients) == 0


def test_unknown_reading_of_the_paper_is_refused():
  sentence = r"hp\.protocol: got 'relased'.*did you mean released\?"
  with pytest.raises(BadInput, match=sentence):
    build('fedper', protocol='relased')
