"""FedBABU paper: Figures 2 to 13, 15 and 16, each with a command of its own:

    python experiments/reproduce.py --table=fedbabu/fig12

Figures 2 to 9 are centralised runs of 160 epochs, the others federated ones
with f = 0.1 and tau = 10.
"""

from collections.abc import Callable, Mapping
from typing import Any

from configs.tables.common import load_config
from fedjax_pfl.reproduction.cells import Figure, replaced

Runs = dict[str, dict[str, Any]]  # label -> settings

HEADS = (
  *('xavier_uniform', 'xavier_normal', 'he_uniform', 'he_normal'),
  *('orthogonal', 'similar'),
)
FIGURES: dict[str, Callable[[], Figure]] = {}


def add(
  number: str, title: str, what: str, runs: Callable[[], Runs], **options: Any
) -> None:
  """Add a figure; see `Figure` for what it is made of."""
  FIGURES[number] = lambda: Figure(
    f'fedbabu/fig{number}', title, runs(), what, options
  )


def parts_of(dataset: str, **changes: Any) -> Callable[[], Runs]:
  """Return three centralised runs, each of another part.

  Test accuracy by epoch, with all, the body, or the head trained; the rest
  stays as it was initialised.
  """

  def runs():
    config = replaced(load_config(f'fedbabu_{dataset}:centralized'), changes)
    return {
      part: replaced(config, {'hp.trainable': part})
      for part in ('full', 'body', 'head')
    }

  return runs


def heads_of(dataset: str, **changes: Any) -> Callable[[], Runs]:
  """Return centralised runs of the body, each under another head.

  Test accuracy by epoch; the legend has the mean cosine between the rows of the
  head.
  """

  def runs():
    body = {'hp.trainable': 'body', **changes}
    config = replaced(load_config(f'fedbabu_{dataset}:centralized'), body)
    return {head: replaced(config, {'head_init': head}) for head in HEADS}

  return runs


def division_of(beta: float) -> Callable[[], Runs]:
  """Return a run of FedBABU in Table 18, by the label of its partition.

  Nothing is trained. The paper's own generator is not published.
  """
  division = {
    'partition': 'dirichlet',
    'dirichlet_beta': beta,
    'aggregation': 'examples',
  }
  return lambda: {
    f'beta={beta}': replaced(load_config('fedbabu_cifar100'), division)
  }


def methods_of(dataset: str, *shards: int) -> Callable[[], Runs]:
  """Return the runs of FedAvg and FedBABU with so many shards per client."""

  def runs():
    return {
      method if len(shards) == 1 else f'{method}, s={number}': replaced(
        load_config(f'fedbabu_{dataset}:{method}'),
        {'shards_per_client': number},
      )
      for number in shards
      for method in ('fedavg', 'fedbabu')
    }

  return runs


# Figures 6 to 9 differ from the public code: BatchNorm uses the statistics of
# the batch, where that keeps running ones for these networks.
NETWORKS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
  ('CIFAR-100, MobileNet', 'cifar100', {}),
  ('CIFAR-10, 4convNet', 'cifar10', {}),
  ('CIFAR-100, ResNet18', 'cifar100', {'model': 'resnet18'}),
  ('CIFAR-100, ResNet50', 'cifar100', {'model': 'resnet50'}),
)
for place, (setting, dataset, model) in enumerate(NETWORKS):
  first, second = str(2 + 2 * place), str(3 + 2 * place)
  title = f'Full, body and head training, {setting}'
  add(first, title, 'training', parts_of(dataset, **model))
  title = f'Body training under six heads, {setting}'
  add(second, title, 'training', heads_of(dataset, **model))
for number, beta in (('10', 1.0), ('11', 0.5)):
  title = f'Classes of 100 clients, Dirichlet with beta = {beta}'
  add(number, title, 'partition', division_of(beta))
# Cosine between the clients' weights of a layer over 20 epochs of fine-tuning,
# for FedAvg and FedBABU of Table 5. Their shards are not stated; 10 are ours.
add(
  *('12', 'Similarity of clients by layer while they fine-tune', 'similarity'),
  methods_of('cifar100', 10),
  epochs=20,
)
# Accuracy of the clients of a round on all 10,000 tests, of the classes that
# they train on and of the others. Their rounds are repeated.
add(
  *('13', 'Own and other classes after every local epoch', 'class_curves'),
  methods_of('cifar100', 100, 50, 10),
)
# t-SNE of the features of the global model of its test images, one colour a
# class; in 15b for each of the 20 coarse ones. The paper states neither the
# split nor the perplexity. Figure 16 is the same of vehicles only.
for number, words, of_10, of_100 in (
  ('15', '', {}, {'colours': 'coarse'}),
  ('16', 'of vehicles ', *[{'classes': ('vehicles',)}] * 2),
):
  title = f'Features {words}under FedAvg and FedBABU, CIFAR-10'
  add(f'{number}a', title, 'features', methods_of('cifar10', 2), **of_10)
  title = f'{title}0'
  add(f'{number}b', title, 'features', methods_of('cifar100', 10), **of_100)
