"""Label counts of the clients of a config, and their label."""

from configs import digits
from fedjax_pfl.analysis.partition_counts import label_of, partition_counts
from fedjax_pfl.settings import parse_config


def test_every_example_is_counted_once():
  settings = parse_config(digits.get_config('fedbabu').to_dict())
  part = partition_counts(settings, 'a', lambda text: None)
  assert part.label == 'a'
  assert part.train.shape == part.test.shape == (20, 10)
  assert (part.train.sum(), part.test.sum()) == (1442, 355)
  assert ((part.train > 0).sum(1) <= 2).all()  # two shards each


def test_a_label_has_the_partition_and_the_changes():
  settings = parse_config({'partition': 'dirichlet'})
  changes = {'dirichlet_beta': '0.5'}
  assert label_of(settings, changes) == 'dirichlet, dirichlet_beta=0.5'
  changes = {'partition': 'dirichlet'}
  assert label_of(settings, changes) == 'partition=dirichlet'
