"""Footnotes of published numbers: which cells, and one sentence each.

For cells that look misprinted, that are not in the text of their paper, or
where the authors' public code differs from the paper.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Footnote(NamedTuple):
  """A sentence about the cells whose fields, or variants, have these values."""

  where: Mapping[str, tuple[Any, ...]]
  text: str


# Looks misprinted, or holds no information.
MISPRINTS = (
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('22',),
      'algorithm': ('fedprox',),
      'shards_per_client': (100,),
      'local_epochs': (1,),
      'metric': ('initial_accuracy',),
    },
    'Perhaps a misprint for 52.25: s=50 has 52.08 and the personalised '
    'accuracy is 56.22.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('15',),
      'shards_per_client': (5,),
      'client_fraction': (0.1,),
      'local_epochs': (1,),
      'local_parts': ('conv12', 'conv123'),
    },
    'Conv12 and Conv123 are both printed as 74.50 ± 8.77: one is probably a '
    'copy of the other.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('7',),
      'algorithm': ('fedprox',),
      'shards_per_client': (10,),
      'metric': ('personalized_accuracy',),
    },
    'Falls and rises again with tau (66.39, 41.56, 43.48), unlike every other '
    'row.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('10',),
      'algorithm': ('fedavg',),
      'momentum': ('0.99',),
      'shards_per_client': (50, 10),
    },
    'The printed number is that of chance: the run diverged.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'table': ('20',), 'mean': (0.0,)},
    'Printed as 0.00 ± 0.00: no client got one image right.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('25',),
      'algorithm': ('fedbabu', 'fedper'),
      'mean': (47.0,),
    },
    'The same 47.00 is printed three times in this table.',
  ),
  Footnote(
    {
      'paper': ('fedconcat',),
      'table': ('1',),
      'dataset': ('svhn',),
      'partition': ('dirichlet_0.5',),
    },
    'Above the 86.2 printed for centralised training, as all seven methods '
    'are here.',
  ),
  Footnote(
    {
      'paper': ('superfed',),
      'table': ('3',),
      'metric': ('global_accuracy',),
      'phase2_start': ('0.4',),
    },
    'Both mixing modes are printed with 45.35 here: a coincidence or a copy.',
  ),
)

# The number is not from the text of the paper, or that text is broken.
SOURCES = (
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('3',),
      'algorithm': ('fedbabu',),
      'client_fraction': (1.0,),
      'metric': ('initial_accuracy',),
    },
    "Taken from a third party's slides, and in no other table.",
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('3',),
      'client_fraction': (1.0,),
      'metric': ('initial_accuracy_without_head',),
    },
    "Taken from a third party's slides, and in no other table.",
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('3',),
      'client_fraction': (0.1,),
      'local_epochs': (1, 4),
      'metric': ('initial_accuracy_without_head',),
    },
    "Taken from a third party's slides, and in no other table.",
  ),
  Footnote(
    {'paper': ('fedbabu',), 'table': ('18',)},
    'The heading says ResNet10, the caption MobileNet, and the level of the '
    'numbers MobileNet; neither the drawing of the shares nor the weights of '
    'the mean are published.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'table': ('19',)},
    'The printed sizes of EMNIST (731,668 and 82,587) are not those of its '
    'usual split (697,932 and 116,323), and no code for it is public.',
  ),
  Footnote(
    {'paper': ('fedconcat',), 'table': ('1', '3')},
    'The number of clients is not stated beside this table.',
  ),
  Footnote(
    {'paper': ('superfed',), 'table': ('1', '2')},
    'The column heads of this table are unknown: which number is top 1 of '
    'which dataset is inferred from their order.',
  ),
)

# Where paper and public code differ, or the number contradicts its text.
PROTOCOLS = (
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('7', '22'),
      'algorithm': ('fedprox', 'fedprox_babu'),
    },
    'With mu=0.01 the proximal term is too small for the printed distance '
    'from FedAvg: something else differed too.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'local_parts': ('conv123',)},
    'An early condition of the public code was always true for Conv123: the '
    'column is in all likelihood a second run of FedAvg, which ours is.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('2',),
      'server_trainable': ('full',),
    },
    'The public code trains the body alone on shared data; that the whole '
    'model was trained here is read off an older version of it.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'metric': ('initial_accuracy_without_head',)},
    'The paper compares with templates by cosine, the public code by '
    'Euclidean distance; ours is the latter.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('fedper',)},
    "The public code discards each client's head after its round, unlike the "
    'paper; so does ours here.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('lg_fedavg',)},
    "Each client's best model was in all likelihood chosen by its TEST "
    'accuracy, without the fine-tuning that the paper writes of, and tested '
    'with the mean head of all these models, as in the public code; so is '
    'ours.',
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'table': ('18', '19'),
      'algorithm': ('local_only',),
    },
    "Each client's best epoch was chosen by its TEST accuracy; the recipe "
    '(160 epochs, batches of 10) is that of CIFAR, for none is stated here.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('local_only',)},
    "Each client's best epoch was chosen by its TEST accuracy.",
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('fedrep',)},
    'Momentum 0.5 and tau head epochs before the test are those of the '
    'public code; the paper states neither a momentum nor tau.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('per_fedavg',)},
    'Adapted on half of the TEST images and tested on the other half, as the '
    'printed spread shows; the public code does something else.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'algorithm': ('ditto',)},
    'Evaluated as the older public code did: no client keeps a personal model, '
    'and one that was not in the last round is tested with the global model.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'table': ('11',), 'shards_per_client': (100, 50)},
    'The printed 20 test images of a client are only its mean here: the '
    'partition leaves some blocks of a class empty.',
  ),
  Footnote(
    {'paper': ('fedbabu',), 'table': ('16', '17')},
    'Whether this network was tested with running or with batch statistics '
    'is unknown.',
  ),
  Footnote(
    {'paper': ('fedconcat',), 'table': ('3',)},
    'BatchNorm uses the statistics of the batch in ours; the public code '
    'tests with running statistics, which it averages like weights.',
  ),
  Footnote(
    {'paper': ('superfed',), 'table': ('1', '2'), 'algorithm': ('apfl',)},
    "In APFL no private model acts on the global one: ours is FedAvg's and "
    'can only repeat its number; how the printed one came about is unknown.',
  ),
  Footnote(
    {'paper': ('superfed',), 'table': ('1', '2'), 'algorithm': ('fedprox',)},
    'mu of FedProx is not stated: the 0.01 of ours is that of SuperFed in its '
    'public commands; the distance is not squared, as in its public code.',
  ),
)

# What the authors' public code gave on the real images, run in 2026.
MEASURED = (
  Footnote(
    {
      'paper': ('fedbabu',),
      'dataset': ('cifar10',),
      'algorithm': ('fedbabu',),
      'shards_per_client': (5,),
      'client_fraction': (0.1,),
      'local_epochs': (10,),
      'metric': ('initial_accuracy',),
    },
    "The authors' code, run today, gives 63.29 ± 8.71.",
  ),
  Footnote(
    {
      'paper': ('fedbabu',),
      'dataset': ('cifar10',),
      'algorithm': ('fedbabu',),
      'shards_per_client': (5,),
      'client_fraction': (0.1,),
      'local_epochs': (10,),
      'metric': ('personalized_accuracy',),
    },
    "The authors' code, run today, gives 84.31 ± 6.45.",
  ),
  Footnote(
    {'paper': ('fedbabu',), 'dataset': ('cifar10',)},
    "The authors' code, run today, gives more than was printed where it was "
    'tried on CIFAR-10: FedBABU with s=5, f=0.1, tau=10, 63.29 for 55.55 and, '
    'personalised, 84.31 for 80.99.',
  ),
)

# A cell has the first matching sentence of each: special cases come first.
GROUPS = (MISPRINTS, SOURCES, PROTOCOLS, MEASURED)
