"""FedBABU paper, Table 9: centralised models, fine-tuned by clients.

  python experiments/reproduce.py --table=fedbabu/9 \\
      --where shards_per_client=10,trainable=body

CIFAR-100, MobileNet: all of it, or the body alone, trained centrally for 10
epochs; then 100 clients fine-tune it for 0 to 5. Varied: what was trained,
shards s, epochs of fine-tuning. Printed: accuracy after them.

A cell's own training has no round: FedAvg's config evaluates the model that it
starts from, once for all epochs.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Reading

EPOCHS = 1, 2, 3, 4, 5
VIEWS = ('initial', *(f'finetuned_{k}' for k in EPOCHS[:-1]), 'finetuned')
EVALUATION_ONLY = {'rounds': 0, 'finetune.epochs': EPOCHS, 'views': VIEWS}


def get_table():
  return common.table(
    'fedbabu/9',
    'Centralised models fine-tuned by clients',
    rows=('shards_per_client', 'trainable'),
    columns=('finetune_epochs',),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell, which begins with one of two centralised runs."""
  cell = common.fedbabu_cell(
    published._replace(algorithm='fedavg'), EVALUATION_ONLY
  )
  epochs = int(published.variant['finetune_epochs'])
  return cell._replace(
    published=published,
    reading=Reading(VIEWS[epochs]),
    init_from=centralized(published.variant['trainable']),
  )


def centralized(part):
  """Return the config of ten central epochs; the rate would drop at 80."""
  return common.replaced(
    common.load_config('centralized_cifar100'),
    {'hp.trainable': part, 'total_epochs': 10, 'lr_milestones': ()},
  )
