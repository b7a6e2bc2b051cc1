"""FedBABU paper, Table 4: which part a client fine-tunes.

  python experiments/reproduce.py --table=fedbabu/4 \\
      --where shards_per_client=10,local_epochs=10

CIFAR-100, MobileNet, 100 clients, f = 0.1. Varied: what is fine-tuned for 5
epochs (body, head, all), local epochs tau, shards s, FedBABU (4a) or FedAvg
(4b). Printed: accuracy after it. All trainings are those of Table 5; each is
evaluated three times.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/4',
    'Accuracy by the part that is fine-tuned',
    rows=('shards_per_client', 'local_epochs'),
    columns=('algorithm', 'finetune_trainable'),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell; `full` is what a run evaluates by itself."""
  part = published.variant['finetune_trainable']
  evaluation = {} if part == 'full' else {'finetune.trainable': part}
  return common.fedbabu_cell(published, evaluation=evaluation)
