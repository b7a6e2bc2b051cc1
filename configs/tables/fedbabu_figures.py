"""FedBABU paper: Figures 2 to 13, 15 and 16, each with a command of its own.

Figures 2 to 9 are centralised runs of 160 epochs, the others federated ones
with f = 0.1 and tau = 10.
"""

from collections.abc import Mapping
from typing import Any

from configs.tables.common import load_config
from fedjax_pfl.reproduction.cells import Figure, replaced

Runs = dict[str, dict[str, Any]]  # label -> settings

HEADS = (
  'xavier_uniform',
  'xavier_normal',
  'he_uniform',
  'he_normal',
  'orthogonal',
  'similar',
)
METHODS = 'fedavg', 'fedbabu'


def figure_2():
  """Return Figure 2: what is trained centrally, CIFAR-100, MobileNet.

    python experiments/reproduce.py --table=fedbabu/fig2

  Test accuracy by epoch of 160, with all, the body, or the head trained; the
  rest stays as it was initialised.
  """
  return Figure(
    'fedbabu/fig2',
    'Full, body and head training, CIFAR-100, MobileNet',
    _runs_of_parts('cifar100'),
    what='training',
    options={},
  )


def figure_3():
  """Return Figure 3: how a frozen head is initialised, CIFAR-100, MobileNet.

    python experiments/reproduce.py --table=fedbabu/fig3

  Test accuracy by epoch of 160 centralised ones in which only the body is
  trained; the legend has the mean cosine between the rows of the head.
  """
  return Figure(
    'fedbabu/fig3',
    'Body training under six heads, CIFAR-100, MobileNet',
    _runs_of_heads('cifar100'),
    what='training',
    options={},
  )


def figure_4():
  """Return Figure 4: Figure 2 on CIFAR-10 with the 4convNet.

    python experiments/reproduce.py --table=fedbabu/fig4

  All else as there.
  """
  return Figure(
    'fedbabu/fig4',
    'Full, body and head training, CIFAR-10, 4convNet',
    _runs_of_parts('cifar10'),
    what='training',
    options={},
  )


def figure_5():
  """Return Figure 5: Figure 3 on CIFAR-10 with the 4convNet.

    python experiments/reproduce.py --table=fedbabu/fig5

  All else as there.
  """
  return Figure(
    'fedbabu/fig5',
    'Body training under six heads, CIFAR-10, 4convNet',
    _runs_of_heads('cifar10'),
    what='training',
    options={},
  )


def figure_6():
  """Return Figure 6: Figure 2 with ResNet18.

    python experiments/reproduce.py --table=fedbabu/fig6

  Differs from the public code: BatchNorm uses the statistics of the batch,
  where that keeps running ones for this network.
  """
  return Figure(
    'fedbabu/fig6',
    'Full, body and head training, CIFAR-100, ResNet18',
    _runs_of_parts('cifar100', {'model': 'resnet18'}),
    what='training',
    options={},
  )


def figure_7():
  """Return Figure 7: Figure 3 with ResNet18.

    python experiments/reproduce.py --table=fedbabu/fig7

  Differs from the public code as Figure 6.
  """
  return Figure(
    'fedbabu/fig7',
    'Body training under six heads, CIFAR-100, ResNet18',
    _runs_of_heads('cifar100', {'model': 'resnet18'}),
    what='training',
    options={},
  )


def figure_8():
  """Return Figure 8: Figure 2 with ResNet50.

    python experiments/reproduce.py --table=fedbabu/fig8

  Differs from the public code as Figure 6.
  """
  return Figure(
    'fedbabu/fig8',
    'Full, body and head training, CIFAR-100, ResNet50',
    _runs_of_parts('cifar100', {'model': 'resnet50'}),
    what='training',
    options={},
  )


def figure_9():
  """Return Figure 9: Figure 3 with ResNet50.

    python experiments/reproduce.py --table=fedbabu/fig9

  Differs from the public code as Figure 6.
  """
  return Figure(
    'fedbabu/fig9',
    'Body training under six heads, CIFAR-100, ResNet50',
    _runs_of_heads('cifar100', {'model': 'resnet50'}),
    what='training',
    options={},
  )


def figure_10():
  """Return Figure 10: classes by client, Dirichlet with beta = 1.0.

    python experiments/reproduce.py --table=fedbabu/fig10

  CIFAR-100, 100 clients: the division of Table 18. Nothing is trained. The
  paper's own generator is not published.
  """
  return Figure(
    'fedbabu/fig10',
    'Classes of 100 clients, Dirichlet with beta = 1.0',
    _run_of_division(1.0),
    what='partition',
    options={},
  )


def figure_11():
  """Return Figure 11: Figure 10 with beta = 0.5.

    python experiments/reproduce.py --table=fedbabu/fig11

  All else as there.
  """
  return Figure(
    'fedbabu/fig11',
    'Classes of 100 clients, Dirichlet with beta = 0.5',
    _run_of_division(0.5),
    what='partition',
    options={},
  )


def figure_12():
  """Return Figure 12: similarity of clients in fine-tuning, by layer.

    python experiments/reproduce.py --table=fedbabu/fig12

  CIFAR-100, MobileNet: cosine between the clients' weights of a layer over 20
  epochs of fine-tuning, for FedAvg and FedBABU of Table 5. Their shards are not
  stated; 10 are ours.
  """
  return Figure(
    'fedbabu/fig12',
    'Similarity of clients by layer while they fine-tune',
    _runs_of_methods('cifar100', shards=10),
    what='similarity',
    options={'epochs': 20},
  )


def figure_13():
  """Return Figure 13: own and other classes after every local epoch.

    python experiments/reproduce.py --table=fedbabu/fig13

  CIFAR-100, MobileNet: accuracy of the clients of a round on all 10,000 tests,
  of the classes that they train on and of the others, for FedAvg and FedBABU of
  Table 5 with 100, 50 and 10 shards. Their rounds are repeated.
  """
  return Figure(
    'fedbabu/fig13',
    'Own and other classes after every local epoch',
    {
      f'{method}, s={shards}': settings
      for shards in (100, 50, 10)
      for method, settings in _runs_of_methods('cifar100', shards).items()
    },
    what='class_curves',
    options={},
  )


def figure_15a():
  """Return Figure 15: features of the global model, CIFAR-10.

    python experiments/reproduce.py --table=fedbabu/fig15a

  4convNet, s = 2, FedAvg and FedBABU: t-SNE of the features of its test images,
  one colour a class. The paper states neither the split nor the perplexity.
  """
  return Figure(
    'fedbabu/fig15a',
    'Features under FedAvg and FedBABU, CIFAR-10',
    _runs_of_methods('cifar10', shards=2),
    what='features',
    options={},
  )


def figure_15b():
  """Return Figure 15: features of the global model, CIFAR-100.

    python experiments/reproduce.py --table=fedbabu/fig15b

  MobileNet, s = 10, FedAvg and FedBABU: t-SNE of the features of its test
  images, one colour for each of the 20 coarse classes. The paper states neither
  the split nor the perplexity.
  """
  return Figure(
    'fedbabu/fig15b',
    'Features under FedAvg and FedBABU, CIFAR-100',
    _runs_of_methods('cifar100', shards=10),
    what='features',
    options={'colours': 'coarse'},
  )


def figure_16a():
  """Return Figure 16: Figure 15 of vehicles only, CIFAR-10.

    python experiments/reproduce.py --table=fedbabu/fig16a

  One colour a class.
  """
  return Figure(
    'fedbabu/fig16a',
    'Features of vehicles under FedAvg and FedBABU, CIFAR-10',
    _runs_of_methods('cifar10', shards=2),
    what='features',
    options={'classes': ('vehicles',)},
  )


def figure_16b():
  """Return Figure 16: Figure 15 of vehicles only, CIFAR-100.

    python experiments/reproduce.py --table=fedbabu/fig16b

  One colour a class.
  """
  return Figure(
    'fedbabu/fig16b',
    'Features of vehicles under FedAvg and FedBABU, CIFAR-100',
    _runs_of_methods('cifar100', shards=10),
    what='features',
    options={'classes': ('vehicles',)},
  )


def _runs_of_parts(dataset: str, changes: Mapping[str, Any] = {}) -> Runs:
  """Return three centralised runs, each of another part."""
  settings = replaced(load_config(f'fedbabu_{dataset}:centralized'), changes)
  return {
    part: replaced(settings, {'hp.trainable': part})
    for part in ('full', 'body', 'head')
  }


def _runs_of_heads(dataset: str, changes: Mapping[str, Any] = {}) -> Runs:
  """Return centralised runs of the body, each under another head."""
  body = {'hp.trainable': 'body', **changes}
  settings = replaced(load_config(f'fedbabu_{dataset}:centralized'), body)
  return {head: replaced(settings, {'head_init': head}) for head in HEADS}


def _run_of_division(beta: float) -> Runs:
  """Return a run of FedBABU in Table 18, by the label of its partition."""
  division = {
    'partition': 'dirichlet',
    'dirichlet_beta': beta,
    'aggregation': 'examples',
  }
  settings = load_config('fedbabu_cifar100')
  return {f'beta={beta}': replaced(settings, division)}


def _runs_of_methods(dataset: str, shards: int) -> Runs:
  """Return the runs of FedAvg and FedBABU with so many shards per client."""
  return {
    method: replaced(
      load_config(f'fedbabu_{dataset}:{method}'), {'shards_per_client': shards}
    )
    for method in METHODS
  }
