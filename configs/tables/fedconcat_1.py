"""FedConcat, Table 1: seven methods, one global model.

  python experiments/reproduce.py --table=fedconcat/1 \\
      --where dataset=cifar10,partition=classes_2

CIFAR-10, SVHN and Fashion-MNIST, simple CNN, 40 clients, all in each round.
Varied: the partition (classes_2: two classes a client; dirichlet_0.1), the
method. Printed: accuracy of the server's model on the whole test set after 50
rounds, mean and deviation over three seeds: --seeds=3.

Not stated beside the table, and ours: 40 clients (those of the paper's
figures), mu = 0.01 of FedProx, mu = 1 of MOON, alpha = 0.5 of FedRS, tau = 1 of
FedLC, 100 epochs of centralised training; 33 rounds of encoders (28 for
Fashion-MNIST) and 200 of the classifier, which send as much as 50 of FedAvg.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Cell

CONFIGS = {
  'fedavg': 'fedavg_fedconcat',
  'fedprox': 'fedprox_fedconcat',
  'moon': 'moon_cifar10',
  'fedrs': 'fedrs_cifar10',
  'fedlc': 'fedlc_cifar10',
  'fedconcat': 'fedconcat_cifar10',
  'fedconcat_id': 'fedconcat_cifar10',
  'centralized': 'centralized_fedconcat',
}
DATASETS = {
  'cifar10': 'cifar10',
  'svhn': 'svhn_cropped',
  'fmnist': 'fashion_mnist',
  'cifar100': 'cifar100',
  'tiny_imagenet': 'tiny_imagenet',
}
FMNIST_ROUNDS = 28  # of encoders: its model is smaller, a classifier is not


def get_table():
  return common.table(
    'fedconcat/1',
    'Accuracy of the global model under label skew',
    rows=('dataset', 'partition'),
    columns=('algorithm',),
    cell=cell_of,
  )


def cell_of(published, changes=None):
  """Return the cell of any of the paper's tables."""
  settings = common.load_config(CONFIGS[published.algorithm])
  own = {'dataset': DATASETS[published.dataset], **division(published)}
  if published.num_clients:
    own['num_clients'] = published.num_clients
  if published.algorithm == 'fedconcat_id':
    own['hp.distributions'] = 'inferred'
  if published.dataset == 'fmnist' and settings['algorithm'] == 'fedconcat':
    own['rounds'] = FMNIST_ROUNDS
  settings = common.replaced(settings, {**own, **(changes or {})})
  return Cell(published, settings, common.READINGS[published.metric])


def division(published):
  """Return the fields of a partition; centralised training has none."""
  kind, _, number = published.partition.partition('_')
  if kind == 'classes':
    return {'partition': 'classes', 'classes_per_client': int(number)}
  if kind == 'dirichlet':
    return {'partition': 'dirichlet_capped', 'dirichlet_beta': float(number)}
  return {}
