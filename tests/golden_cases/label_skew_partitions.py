"""The partitions of FedConcat, as a run deals them for a seed."""

import numpy as np

from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions import Sizes
from fedjax_pfl.data.partitions.classes import class_lists
from fedjax_pfl.data.partitions.dirichlet_capped import (
  DirichletCapped,
  cut_class,
)

# The settings of the partitions, by their names in the cases.
CLASSES = {'classes_per_client': 'classes_per_client'}
DIRICHLET = {'beta': 'dirichlet_beta', 'min_size': 'dirichlet_min_size'}


def check_classes(case):
  """Deal by the seed alone: lists of classes, and every index in order."""
  for name, variant in case['variants'].items():
    indices = deal(case, name, 'classes', CLASSES)
    lists = class_lists(
      variant['clients'],
      num_classes(case, name),
      variant['classes_per_client'],
      variant['seed'],
    )
    holders = np.bincount(lists.ravel(), minlength=num_classes(case, name))
    check_if_stored(case, f'{name}/class_lists', lists)
    check_if_stored(case, f'{name}/holders', holders)
    assert holders.tolist() == variant.get('holders_per_class', [*holders])
    check_indices(case, name, indices)
  case.finish(inputs=[f'{name}/y' for name in case['variants']])


def check_dirichlet(case):
  """Deal by the seed alone, or by the proportions and orders that are given."""
  for name, variant in case['variants'].items():
    if f'{name}/proportions' in case.digests:
      indices = deal_given(case, name, variant)
    else:
      indices = deal(case, name, 'dirichlet_capped', DIRICHLET)
      check_tries(case, name, variant)
    check_indices(case, name, indices)
  words = ('y', 'proportions', 'class_orders', 'class_sizes')
  case.finish(
    inputs=[f'{name}/{word}' for name in case['variants'] for word in words]
  )


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
  proportions = case.arrays[f'{name}/proportions']
  class_sizes = case.arrays[f'{name}/class_sizes'].astype(int)
  orders = np.split(
    case.arrays[f'{name}/class_orders'].astype(int), np.cumsum(class_sizes)
  )[:-1]
  num_clients = variant['clients']
  mean, full = class_sizes.sum() / num_clients, 0
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
  counts = np.bincount(
    case.arrays[f'{name}/y'], minlength=num_classes(case, name)
  )
  sizes = Sizes(variant['clients'], counts, variant['seed'])
  plan = DirichletCapped(**settings_of(variant, DIRICHLET)).draw(
    sizes, np.random.default_rng(0)
  )
  assert plan.tries == variant.get('tries', plan.tries)


def check_indices(case, name, indices):
  labels = case.arrays[f'{name}/y']
  counts = [
    np.bincount(labels[rows], minlength=num_classes(case, name))
    for rows in indices
  ]
  sizes = [len(rows) for rows in indices]
  case.check(f'{name}/indices', np.concatenate(indices), exact=True)
  case.check(f'{name}/sizes', sizes, exact=True)
  case.check(f'{name}/class_counts', counts, exact=True)


def check_if_stored(case, name, got):
  if name in case.digests:
    case.check(name, got, exact=True)


def num_classes(case, name):
  return case.arrays[f'{name}/class_counts'].shape[1]


CHECKS = {
  '#c=k label partition': check_classes,
  'dirichlet label partition': check_dirichlet,
}
