"""FedBABU paper, Table 6: accuracy by the epochs of fine-tuning.

  python experiments/reproduce.py --table=fedbabu/6 \\
      --where shards_per_client=10

CIFAR-100, MobileNet, 100 clients, f = 0.1, tau = 10. Varied: epochs of
fine-tuning (0 to 20), shards s, FedAvg or FedBABU. Printed: accuracy after
them. All trainings are those of Table 5; one fine-tuning of 20 epochs is
evaluated on its way, but for 0 and 5 epochs, which a run evaluates by itself.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Reading


def get_table():
  return common.table(
    'fedbabu/6',
    'Accuracy by epochs of fine-tuning',
    rows=('shards_per_client', 'algorithm'),
    columns=('finetune_epochs',),
    cell=cell_of,
  )


EPOCHS = 1, 2, 3, 4, 5, 10, 15, 20
OF_A_RUN = 0, 5  # 0 is the view "initial"


def cell_of(published):
  """Return the cell; those of other epochs share one more evaluation."""
  cell = common.fedbabu_cell(published)
  epochs = int(published.variant['finetune_epochs'])
  if epochs in OF_A_RUN:
    return cell
  last = epochs == EPOCHS[-1]
  return cell._replace(
    evaluation={'finetune.epochs': EPOCHS},
    reading=Reading('finetuned' if last else f'finetuned_{epochs}'),
  )
