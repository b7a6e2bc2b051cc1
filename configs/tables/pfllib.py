"""PFLlib's benchmark page: three image sets, Dir(0.1) and pathological."""

from configs import pfllib
from configs.tables.common import load_config, published
from experiments.reproduction.cells import (
  Cell,
  Published,
  Reading,
  Table,
  replaced,
)

SETS = {
  'fmnist': 'fashion_mnist',
  'cifar100': 'cifar100',
  'tinyimagenet': 'tiny_imagenet',
}
VALIDATED = {'validation_fraction': 0.1, 'select': 'validation'}


def cells_of(printed: Published) -> list[Cell]:
  """Return the printed number, and two by other choices of the round.

  FedBABU is fine-tuned after the last round alone, which is printed.
  """
  words = [SETS[printed.dataset], printed.algorithm]
  if printed.partition.startswith(pfllib.PATHOLOGICAL):
    words.append(pfllib.PATHOLOGICAL)
  settings = load_config(f'pfllib:{",".join(words)}')
  (view,) = settings['views']
  is_best = view in settings['eval_views']
  choices = (
    (printed.metric, 'best_pooled' if is_best else 'pooled', {}),
    ('last_accuracy', 'pooled', {}),
    ('validated_accuracy', 'pooled', VALIDATED),
  )
  return [
    Cell(
      printed
      if metric == printed.metric
      else printed._replace(metric=metric, mean=None, std=None),
      replaced(settings, changes),
      Reading(view, measure),
    )
    for metric, measure, changes in choices
  ]


TITLES = {
  '1': 'Fashion-MNIST, Dir(0.1)',
  '2': 'CIFAR-100 and Tiny-ImageNet, Dir(0.1)',
  '3': 'Pathological: 2, 10 and 20 classes a client',
}


def load(paper: str, number: str) -> Table:
  """Return the table of the methods that configs/pfllib.py has."""
  rows = [
    one for one in published() if (one.paper, one.table) == (paper, number)
  ]
  alone = {'algorithm': 'local_only', 'mean': None, 'std': None}
  firsts = {one.dataset: one for one in reversed(rows)}.values()
  rows += [one._replace(**alone) for one in firsts]
  return Table(
    f'{paper}/{number}',
    f'{TITLES[number]}: all tests together, by the choice of the round',
    tuple(
      cell
      for one in rows
      if one.algorithm in pfllib.METHODS
      for cell in cells_of(one)
    ),
    ('algorithm',),
    ('dataset', 'metric') if number != '1' else ('metric',),
  )


# 20 clients, all in each round, 2,000 rounds of one epoch, batches of 10.
# Printed: accuracy on the tests of all clients together, in the best of all
# rounds by TEST accuracy; mean and deviation of three runs. Beside it, without
# a printed number: the last round of the same run, and, of a run that trains on
# nine tenths, the round that is best on the other tenth. Local-only is ours.
TABLES = dict.fromkeys(TITLES, load)
