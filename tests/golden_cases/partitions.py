"""Partitions: from recorded draws, or as a run deals them for a seed."""

import numpy as np

from fedjax_pfl.data.partition import partition
from fedjax_pfl.data.partitions import Sizes
from fedjax_pfl.data.partitions.classes import class_lists
from fedjax_pfl.data.partitions.dirichlet_capped import cut_class, draw_plan
from fedjax_pfl.data.partitions.shards import deal_blocks

# The settings of the partitions, by their names in the cases.
CLASSES = {'classes_per_client': 'classes_per_client'}
DIRICHLET = {'beta': 'dirichlet_beta', 'min_size': 'dirichlet_min_size'}


def check_shards(case):
  """Replay the recorded draws: every index must come out, in order."""
  for name in case['sets']:
    for s in case['shards_per_client']:
      for split in ('train', 'test'):
        place = f'{name}/s{s}/{split}'
        inputs = (
          f'{name}/{split}_labels',
          f'{place}/class_assignment',
          f'{place}/block_choice',
        )
        if f'{place}/client_indices' in case.digests:
          replay(case, place, *case.given(*inputs))


def replay(case, place, labels, assignment, chosen):
  labels, sizes = labels.astype(int), []

  def choose(pool_sizes):
    sizes.append(pool_sizes)
    return chosen.ravel()

  clients = deal_blocks(labels, assignment.astype(int), choose)
  counts = counts_of(labels, clients, case['classes'])
  case.check(f'{place}/pool_size', np.reshape(sizes, chosen.shape))
  case.check(f'{place}/client_sizes', [len(rows) for rows in clients])
  case.check(f'{place}/client_indices', np.concatenate(clients))
  case.check(f'{place}/class_counts', counts)


def counts_of(labels, clients, number):
  return [np.bincount(labels[rows], minlength=number) for rows in clients]


def check_classes(case):
  """Deal by the seed alone: lists of classes, and every index in order."""
  for name, variant in case['variants'].items():
    number = num_classes(case, name)
    lists = class_lists(
      variant['clients'], number, variant['classes_per_client'], variant['seed']
    )
    holders = np.bincount(lists.ravel(), minlength=number)
    case.check(f'{name}/class_lists', lists, exact=True)
    case.check(f'{name}/holders', holders, exact=True)
    assert holders.tolist() == variant.get('holders_per_class', [*holders])
    check_indices(case, name, deal(case, name, 'classes', CLASSES))


def check_dirichlet(case):
  """Deal by the seed alone, or by the proportions and orders that are given."""
  for name, variant in case['variants'].items():
    if f'{name}/proportions' in case.digests:
      indices = deal_given(case, name, variant)
    else:
      indices = deal(case, name, 'dirichlet_capped', DIRICHLET)
      check_tries(case, name, variant)
    check_indices(case, name, indices)


def deal(case, name, way, names):
  """Return the index vectors for training, as a run has them."""
  variant, labels = case['variants'][name], case.arrays[f'{name}/y']
  indices, _ = partition(
    way,
    labels,
    labels,
    num_clients=variant['clients'],
    num_classes=num_classes(case, name),
    test_partition='whole',
    seed=variant['seed'],
    **settings_of(variant, names),
  )
  return indices


def settings_of(variant, names):
  """Return the settings that the case has, by their names in the package."""
  return {new: variant[old] for old, new in names.items() if old in variant}


def deal_given(case, name, variant):
  """Cut the classes that are given, in the orders that are given."""
  words = 'proportions', 'class_orders', 'class_sizes'
  inputs = case.given(*(f'{name}/{word}' for word in words))
  proportions, orders, class_sizes = inputs
  ends = np.cumsum(class_sizes.astype(int))
  orders = np.split(orders.astype(int), ends)[:-1]
  num_clients = variant['clients']
  mean, full = ends[-1] / num_clients, 0
  held, parts = np.zeros(num_clients, int), []
  for order, shares in zip(orders, proportions, strict=True):
    full += (held >= mean).sum()
    cuts = cut_class(shares, held, len(order), mean)
    parts.append(np.split(order, cuts))
    held += [len(rows) for rows in parts[-1]]
  assert full == variant.get('times_a_full_client_was_zeroed', full)
  assert held.tolist() == variant.get('sizes', [*held])
  return [np.concatenate(own) for own in zip(*parts, strict=True)]


def check_tries(case, name, variant):
  labels = case.arrays[f'{name}/y']
  counts = np.bincount(labels, minlength=num_classes(case, name))
  sizes = Sizes(variant['clients'], counts, variant['seed'])
  plan = draw_plan(sizes, variant['beta'], variant.get('min_size', 10))
  assert plan.tries == variant.get('tries', plan.tries)


def check_indices(case, name, indices):
  (labels,) = case.given(f'{name}/y')
  counts = counts_of(labels, indices, num_classes(case, name))
  sizes = [len(rows) for rows in indices]
  case.check(f'{name}/indices', np.concatenate(indices), exact=True)
  case.check(f'{name}/sizes', sizes, exact=True)
  case.check(f'{name}/class_counts', counts, exact=True)


def num_classes(case, name):
  return case.arrays[f'{name}/class_counts'].shape[1]


CHECKS = {
  'shard partition': check_shards,
  '#c=k label partition': check_classes,
  'dirichlet label partition': check_dirichlet,
}
