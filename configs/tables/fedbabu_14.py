"""FedBABU paper, Table 14: which layers clients train, before fine-tuning.

  python experiments/reproduce.py --table=fedbabu/14 \\
      --where shards_per_client=5,local_epochs=10,client_fraction=0.1

CIFAR-10, 4convNet, 100 clients. Varied: fraction f, local epochs tau, shards s,
the blocks that are trained in the rounds: the first, the first two, .. all four
(FedBABU), and the head too (FedAvg). Printed: accuracy of the global model.

The printed column Conv123 is in all likelihood a second run of FedAvg, by a
condition of the code of that time that was always true: it is compared with
FedAvg's run here. What its title says is configs/fedbabu_cifar10.py with
--config.hp.trainable=conv1+bn1+conv2+bn2+conv3+bn3.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/14',
    'Accuracy by the layers that clients train, initial',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('local_parts',),
    cell=cell_of,
  )


LAYERS = {'conv1': 'conv1+bn1', 'conv12': 'conv1+bn1+conv2+bn2'}


def cell_of(published):
  """Return the cell; what the print calls Conv123 is a run of FedAvg."""
  part = published.variant['local_parts']
  if part == 'conv123':
    cell = common.fedbabu_cell(published._replace(algorithm='fedavg'))
    return cell._replace(published=published)
  layers = {'hp.trainable': LAYERS[part]} if part in LAYERS else {}
  return common.fedbabu_cell(published, layers)
