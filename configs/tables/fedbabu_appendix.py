"""FedBABU paper: Tables 10 to 25, of its appendix.

On CIFAR-100 with MobileNet and 100 clients, and with the protocols of Table 5
(fedbabu.py), where a table does not state others. f is the client fraction, tau
the local epochs, s the shards per client.
"""

from configs.tables.common import table
from configs.tables.fedbabu import cell_of, cell_of_shared_data

# In Tables 14 and 15; the blocks of all four layers are FedBABU's.
LAYERS = {'conv1': 'conv1+bn1', 'conv12': 'conv1+bn1+conv2+bn2'}


@table(
  'Momentum of training and of fine-tuning',
  rows='metric momentum',
  columns='shards_per_client algorithm',
  where='shards_per_client=10,momentum=0.5',
)
def table_10(published):
  """Return Table 10: momentum.

  f = 0.1, tau = 10. Varied: momentum, the same in training and in fine-tuning,
  s, FedAvg or FedBABU. Printed: before and after fine-tuning. Momentum 0.9 is
  that of Table 5; with 0.99 FedAvg diverges in print for s = 50 and 10.
  """
  momentum = float(published.variant['momentum'])
  return cell_of(
    published, {'momentum': momentum, 'finetune.momentum': momentum}
  )


@table(
  '500 clients, before and after fine-tuning',
  rows='shards_per_client client_fraction local_epochs',
  columns='metric algorithm',
  where='shards_per_client=10,local_epochs=10,client_fraction=0.1',
)
def table_11(published):
  """Return Table 11: 500 clients.

  100 training images a client. Varied: f, tau, s, FedAvg or FedBABU. Printed:
  before and after fine-tuning.

  With s = 50 and 100 the test blocks of a class do not suffice for all clients:
  the number of a client's tests is random there, 20 in the mean.
  """
  return cell_of(published)


@table(
  'CIFAR-10 before fine-tuning, with and without the head',
  rows='shards_per_client client_fraction local_epochs',
  columns='algorithm metric',
  where='shards_per_client=5,local_epochs=10,client_fraction=0.1',
)
def table_12(published):
  """Return Table 12: Table 3 on CIFAR-10.

  4convNet. Varied: f, tau, s, FedAvg or FedBABU. Printed: accuracy before
  fine-tuning, with the head and by nearest class means without it. All
  trainings are those of Table 13. Differs from the paper as Table 3.
  """
  return cell_of(published)


@table(
  'Eight methods on CIFAR-10 with the 4convNet, personalised',
  rows='shards_per_client client_fraction local_epochs',
  columns='algorithm',
  where='shards_per_client=5,local_epochs=10,client_fraction=0.1',
)
def table_13(published):
  """Return Table 13: eight methods on CIFAR-10.

  4convNet. Varied: f, tau, s, the method. Printed: accuracy after
  personalisation; Local-only has neither f nor tau, and stands beside every
  one. Differs from the paper as Table 5.
  """
  return cell_of(published)


@table(
  'Accuracy by the layers that clients train, initial',
  rows='shards_per_client client_fraction local_epochs',
  columns='local_parts',
  where='shards_per_client=5,local_epochs=10,client_fraction=0.1',
)
def table_14(published):
  """Return Table 14: which layers clients train, before fine-tuning.

  CIFAR-10, 4convNet. Varied: f, tau, s, the blocks that are trained in the
  rounds: the first, the first two, .. all four (FedBABU), and the head too
  (FedAvg). Printed: accuracy of the global model.

  The printed column Conv123 is in all likelihood a second run of FedAvg, by a
  condition of the code of that time that was always true: it is compared with
  FedAvg's run here. What its title says is configs/fedbabu_cifar10.py with
  --config.hp.trainable=conv1+bn1+conv2+bn2+conv3+bn3.
  """
  return _cell_of_layers(published)


@table(
  'Accuracy by the layers that clients train, personalised',
  rows='shards_per_client client_fraction local_epochs',
  columns='local_parts',
  where='shards_per_client=5,local_epochs=10,client_fraction=0.1',
)
def table_15(published):
  """Return Table 15: which layers clients train, after fine-tuning.

  Table 14 after 5 epochs of fine-tuning, in which all layers are trained. All
  trainings are those of Table 14, and what it says of Conv123 holds here, too.
  """
  return _cell_of_layers(published)


@table(
  'FedAvg and FedBABU on CIFAR-100 with ResNet18',
  rows='shards_per_client local_epochs',
  columns='metric algorithm',
  where='shards_per_client=10,local_epochs=10',
)
def table_16(published):
  """Return Table 16: ResNet18.

  f = 0.1. Varied: tau, s, FedAvg or FedBABU. Printed: before and after
  fine-tuning.

  Differs from the public code: BatchNorm uses the statistics of the batch, as
  in all other networks of the paper; the code keeps running ones for this one.
  """
  return cell_of(published)


@table(
  'FedAvg and FedBABU on CIFAR-100 with ResNet50',
  rows='shards_per_client local_epochs',
  columns='metric algorithm',
  where='shards_per_client=10,local_epochs=10',
)
def table_17(published):
  """Return Table 17: Table 16 with ResNet50.

  Differs from the public code as Table 16.
  """
  return cell_of(published)


@table(
  'Eight methods on CIFAR-100, Dirichlet partition',
  rows='dirichlet_beta',
  columns='algorithm',
  where='dirichlet_beta=0.5',
)
def table_18(published):
  """Return Table 18: clients by a Dirichlet distribution.

  Clients of unequal sizes, f = 0.1, tau = 10. Varied: beta, the method.
  Printed: accuracy after personalisation.

  Differs from the paper, as far as is known: how it draws the shares is not
  published; clients weigh n_i / n, as its text has it (its code weighs them
  equally, but has no such clients).
  """
  beta = float(published.variant['dirichlet_beta'])
  division = {'partition': 'dirichlet', 'dirichlet_beta': beta}
  return cell_of(published, {**division, 'aggregation': 'examples'})


@table(
  'Eight methods on EMNIST with the 3convNet',
  rows='shards_per_client',
  columns='algorithm',
  where='shards_per_client=6',
)
def table_19(published):
  """Return Table 19: EMNIST by classes.

  62 classes, 3convNet, 1,488 clients of unequal sizes, f = 0.1, tau = 10.
  Varied: s, the method. Printed: accuracy after personalisation.

  Differs from the paper: the usual split of 697,932 and 116,323 images
  (printed: 731,668 and 82,587); no augmentation; clients weigh n_i / n, as its
  text has it.
  """
  return cell_of(published)


@table(
  'Own and other classes, before and after fine-tuning',
  rows='shards_per_client client_fraction local_epochs',
  columns='algorithm metric',
  where='shards_per_client=10,local_epochs=10,client_fraction=0.1',
)
def table_20(published):
  """Return Table 20: classes that a client trains on, and others.

  Varied: f, tau, s, FedAvg or FedBABU. Printed: accuracy on the tests whose
  class the client has in training (ID) and on the others (OOD), before and
  after fine-tuning, with the test set divided by itself into 100 shards a
  client. All trainings are those of Table 5, evaluated on other tests.
  """
  shards = int(published.variant['test_shards_per_client'])
  tests = {'test_partition': 'independent', 'test_shards_per_client': shards}
  return cell_of(published, evaluation=tests)


@table(
  'FedBABU with data shared with the server',
  rows='server_data_fraction',
  columns='shards_per_client metric',
  where='shards_per_client=10,server_data_fraction=0.05',
)
def table_21(published):
  """Return Table 21: FedBABU whose server has data of its own.

  Table 2 for FedBABU: the server trains the body on a share p of the clients'
  training images after each round. p = 0 is FedBABU of Table 5.
  """
  return cell_of_shared_data(published)


@table(
  'FedProx and FedProx with FedBABU, f = 1.0',
  rows='algorithm local_epochs',
  columns='shards_per_client metric',
  where='shards_per_client=10,local_epochs=10',
)
def table_22(published):
  """Return Table 22: FedProx, and FedProx with a frozen head, f = 1.0.

  Table 7 with f = 1.0. What it says of the printed numbers holds here, too.
  """
  return cell_of(published)


@table(
  'Learning rate of the head, accuracy without the head',
  rows='shards_per_client',
  columns='head_lr_ratio',
  where='shards_per_client=10',
)
def table_23(published):
  """Return Table 23: a head that learns more slowly than the body.

  f = 0.1, tau = 10. Varied: the learning rate of the head as a share of the
  body's, s. Printed: accuracy by nearest class means, without the head. Ratio 1
  is FedAvg and ratio 0 FedBABU of Table 3.
  """
  ratio = float(published.variant['head_lr_ratio'])
  changes = {} if ratio in (0, 1) else {'hp.head_lr_ratio': ratio}
  return cell_of(published, changes)


@table(
  'FedBABU with a nearly orthogonal head or similar rows',
  rows='head local_epochs',
  columns='shards_per_client metric',
  where='shards_per_client=10,local_epochs=10,head=similar',
)
def table_24(published):
  """Return Table 24: FedBABU with a head whose rows are alike.

  f = 0.1. Varied: the head that is never trained in the rounds, by chance
  nearly orthogonal (FedBABU as everywhere) or with rows of cosine 0.997; tau,
  s. Printed: before and after fine-tuning.

  The bias of the latter is zero, as in the paper's centralised runs with such
  heads; which it is here is not stated.
  """
  similar = {'head_init': 'similar', 'head_bias': 'zero'}
  is_similar = published.variant['head'] == 'similar'
  return cell_of(published, similar if is_similar else {})


@table(
  'Seven methods on CIFAR-100, 640 epochs',
  rows='shards_per_client local_epochs',
  columns='algorithm',
  where='shards_per_client=10,local_epochs=10',
)
def table_25(published):
  """Return Table 25: twice the epochs, five numbers of shards.

  f = 0.1, 640 epochs in all. Varied: tau, s, the method. Printed: accuracy
  after personalisation. Differs from the paper as Table 5.
  """
  epochs = int(published.variant['total_epochs'])
  return cell_of(published, {'total_epochs': epochs})


def _cell_of_layers(published):
  """Return the cell; what the print calls Conv123 is a run of FedAvg."""
  part = published.variant['local_parts']
  if part == 'conv123':
    fedavg = cell_of(published._replace(algorithm='fedavg'))
    return fedavg._replace(published=published)
  layers = {'hp.trainable': LAYERS[part]} if part in LAYERS else {}
  return cell_of(published, layers)
