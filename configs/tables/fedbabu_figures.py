"""FedBABU paper: Figures 2 to 11, 15 and 16, each with a command of its own:

    python experiments/reproduce.py --table=fedbabu/fig10

Figures 2 to 9 are centralised runs of 160 epochs, the others federated ones
with f = 0.1 and tau = 10.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.tables.common import load_config
from fedjax_pfl.reproduction.cells import Figure, replaced

Runs = dict[str, dict[str, Any]]  # label -> settings

HEADS = (
  *('xavier_uniform', 'xavier_normal', 'he_uniform', 'he_normal'),
  *('orthogonal', 'similar'),
)
DIVISION = {'partition': 'dirichlet', 'aggregation': 'examples'}


def figure(
  title: str, what: str, runs: Callable[[], Runs], **options: Any
) -> Callable[[str], Figure]:
  """Return the function of a figure of its name; see `Figure` for its parts."""
  return lambda name: Figure(name, title, runs(), what, options)


def varied(
  config: str, field: str, values: Sequence[Any], label: str = '', **shared: Any
) -> Callable[[], Runs]:
  """Return runs of a config that differ in one field, by its values.

  `label` is written before each value.
  """
  return lambda: {
    f'{label}{value}': replaced(load_config(config), {**shared, field: value})
    for value in values
  }


def methods_of(dataset: str, shards: int) -> Callable[[], Runs]:
  """Return the runs of FedAvg and FedBABU with so many shards per client."""
  return lambda: {
    method: replaced(
      load_config(f'fedbabu_{dataset}:{method}'), {'shards_per_client': shards}
    )
    for method in ('fedavg', 'fedbabu')
  }


FIGURES: dict[str, Callable[[str], Figure]] = {}
# Test accuracy of centralised runs by epoch: with all, the body, or the head
# trained, where the rest stays as it was initialised; then the body under six
# heads, with the mean cosine between the rows of the head in the legend.
# Figures 6 to 9 differ from the public code: BatchNorm uses the statistics of
# the batch, where that keeps running ones for these networks.
NETWORKS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
  ('CIFAR-100, MobileNet', 'cifar100', {}),
  ('CIFAR-10, 4convNet', 'cifar10', {}),
  ('CIFAR-100, ResNet18', 'cifar100', {'model': 'resnet18'}),
  ('CIFAR-100, ResNet50', 'cifar100', {'model': 'resnet50'}),
)
for place, (setting, dataset, model) in enumerate(NETWORKS):
  config, trained = f'fedbabu_{dataset}:centralized', 'hp.trainable'
  FIGURES[str(2 + 2 * place)] = figure(
    f'Full, body and head training, {setting}',
    'training',
    varied(config, trained, ('full', 'body', 'head'), **model),
  )
  FIGURES[str(3 + 2 * place)] = figure(
    f'Body training under six heads, {setting}',
    'training',
    varied(config, 'head_init', HEADS, **{trained: 'body'}, **model),
  )
# The partition of Table 18; nothing is trained. The paper's own generator is
# not published.
for number, beta in (('10', 1.0), ('11', 0.5)):
  FIGURES[number] = figure(
    f'Classes of 100 clients, Dirichlet with beta = {beta}',
    'partition',
    varied('fedbabu_cifar100', 'dirichlet_beta', [beta], 'beta=', **DIVISION),
  )
# t-SNE of the features of the global model of its test images, one colour a
# class; in 15b for each of the 20 coarse ones. The paper states neither the
# split nor the perplexity. Figure 16 is the same of vehicles only.
for number, words, of_10, of_100 in (
  ('15', '', {}, {'colours': 'coarse'}),
  ('16', 'of vehicles ', *[{'classes': ('vehicles',)}] * 2),
):
  title = f'Features {words}under FedAvg and FedBABU, CIFAR-10'
  runs = methods_of('cifar10', 2)
  FIGURES[f'{number}a'] = figure(title, 'features', runs, **of_10)
  runs = methods_of('cifar100', 10)
  FIGURES[f'{number}b'] = figure(f'{title}0', 'features', runs, **of_100)
