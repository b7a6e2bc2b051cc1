"""Our number beside a published one: when both agree."""

import math

import pytest

from fedjax_pfl.reproduction.cells import Cell, Published, Reading
from fedjax_pfl.reproduction.comparison.compare import (
  compare,
  over_seeds,
  published_error,
)


def printed(mean=50.0, std=10.0, paper='fedbabu', table='13', clients=100):
  setting = ('cifar10', 'convnet4', 'fedavg', clients, 5, 0.1, 10, 'shards')
  return Published(paper, table, *setting, 'initial_accuracy', {}, mean, std)


def cell(**changes):
  return Cell(printed(**changes), {}, Reading('initial'))


def test_one_run_has_the_error_over_its_clients():
  ours = over_seeds([52.0], [10.0], 100, [0])
  assert ours == (52.0, 10.0, 1.0, (0,))
  compared = compare(cell(), ours)
  assert compared.difference == 2.0
  assert compared.tolerance == pytest.approx(2 * math.sqrt(1 + 1))
  assert compared.agrees
  assert not compare(cell(mean=49.1), ours).agrees
  assert compare(cell(mean=54.8), ours).agrees


def test_several_runs_have_the_error_over_seeds():
  ours = over_seeds([50.0, 52.0, 54.0], [9.0, 10.0, 11.0], 100, [0, 1, 2])
  assert (ours.mean, ours.std) == (52.0, 10.0)
  assert ours.error == pytest.approx(2 / math.sqrt(3))


def test_two_seeds_are_no_error_by_themselves():
  """Equal by chance, they would have none."""
  same = over_seeds([55.49, 55.50], [None, None], 10_000, [0, 1])
  share = math.sqrt(55.495 * (100 - 55.495) / 10_000)
  assert same.error == pytest.approx(share / math.sqrt(2), rel=1e-3)
  apart = over_seeds([50.0, 60.0], [None, None], 10_000, [0, 1])
  assert apart.error == pytest.approx(5)
  clients = over_seeds([50.0, 50.0], [6.0, 8.0], 100, [0, 1])
  assert clients.error == pytest.approx(0.5)


def test_one_number_of_the_server_has_the_error_of_its_images():
  alone = over_seeds([60.0], [None], 10_000, [0])
  assert alone.error == pytest.approx(math.sqrt(60 * 40 / 10_000))
  compared = compare(cell(mean=59.1, std=0.2, clients=None), alone)
  assert compared.agrees
  unknown = over_seeds([60.0], [None], 0, [0])
  compared = compare(cell(mean=59.1, std=0.2, clients=None), unknown)
  assert compared.agrees is None and compared.tolerance is None


@pytest.mark.parametrize(
  'paper, table, std, error',
  [
    ('fedbabu', '13', 10.0, 1.0),  # over 100 clients
    ('fedconcat', '1', 3.0, math.sqrt(3)),  # over three seeds
    ('fedconcat', '3', 3.0, 3.0),  # over the last rounds of one run
    ('superfed', '1', None, None),
  ],
)
def test_the_error_of_a_printed_mean(paper, table, std, error):
  published = printed(std=std, paper=paper, table=table)
  assert published_error(published) == pytest.approx(error)


def test_without_any_error_agreement_is_unknown():
  """One number of a global model, and a published one without deviation."""
  alone = over_seeds([46.0], [None], 0, [0])
  compared = compare(cell(std=None, paper='superfed', table='1'), alone)
  assert compared.agrees is None and compared.tolerance is None
  assert compared.difference == -4.0
  assert compare(cell(), None).ours is None
