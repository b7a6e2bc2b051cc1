"""FedBABU paper: Tables 1 to 9, all on CIFAR-100.

MobileNet, 100 clients, total epochs 320. f is the client fraction, tau the
local epochs, s the shards per client. The printed numbers are mean and
deviation over clients, in percent.

Each method has the protocol behind its printed numbers, as far as it is known:
FedPer, LG-FedAvg, FedRep and Ditto by hp.protocol='released', Per-FedAvg on
halves of the tests, LG-FedAvg after FedAvg's run and without fine-tuning, and
of LG-FedAvg and of Local-only each client's best round by its TEST accuracy,
LG-FedAvg's with the mean head of those models.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from configs.tables.common import READINGS, load_config, table
from fedjax_pfl.reproduction.cells import Cell, Published, Reading, replaced

SETTING = (
  'model',
  'num_clients',
  'shards_per_client',
  'client_fraction',
  'local_epochs',
)
EMNIST = {
  'dataset': 'emnist/byclass',
  'aggregation': 'examples',  # n_i / n, as the paper writes; its code is 1 / m
}


class Method(NamedTuple):
  """What made the printed numbers of a method in the FedBABU paper."""

  config: str  # the word after configs/fedbabu_cifar10.py:
  changes: Mapping[str, Any] = {}
  personalized: Reading = Reading('finetuned')
  after: str = ''  # initialised by the final model of this method's run


RELEASED = {'hp.protocol': 'released'}  # the public code; see its file
METHODS = {
  'fedavg': Method('fedavg'),
  'fedbabu': Method('fedbabu'),
  'fedper': Method('fedper', RELEASED),
  'lg_fedavg': Method(
    'lg_fedavg',
    {'hp.train_fedavg': False, **RELEASED},
    Reading('initial', 'best_finished'),  # not fine-tuned
    after='fedavg',
  ),
  'fedrep': Method('fedrep', RELEASED),
  'per_fedavg': Method('per_fedavg', {}, Reading('adapted')),
  'ditto': Method('ditto', RELEASED, Reading('personal')),
  'local_only': Method('local_only', {}, Reading('personal', 'best_round')),
  'fedprox': Method('fedprox'),  # with mu = 0.01, which is its default
  'fedprox_babu': Method('fedprox', {'hp.trainable': 'body'}),
  'partial_update': Method('fedbabu'),  # of which layers: a variant
}
FINETUNE_EPOCHS = 1, 2, 3, 4, 5, 10, 15, 20
FINETUNE_EPOCHS_OF_A_RUN = 0, 5  # 0 is the view "initial"
# Of fine-tuning a centralised model, in Table 9.
CENTRAL_EPOCHS = 1, 2, 3, 4, 5
CENTRAL_VIEWS = (
  'initial',
  *(f'finetuned_{epoch}' for epoch in CENTRAL_EPOCHS[:-1]),
  'finetuned',
)


@table(
  'FedAvg on CIFAR-100 with MobileNet, before and after fine-tuning',
  rows='client_fraction local_epochs',
  columns='shards_per_client metric',
  where='shards_per_client=10,local_epochs=10,client_fraction=0.1',
)
def table_1(published):
  """Return Table 1: FedAvg under more local epochs and fewer clients.

  Varied: f, tau, s. Printed: before and after 5 epochs of fine-tuning. All
  trainings are FedAvg's of Tables 3 and 5.
  """
  return cell_of(published)


@table(
  'FedAvg with data shared with the server',
  rows='server_data_fraction server_trainable',
  columns='shards_per_client metric',
  where='shards_per_client=10,server_data_fraction=0.05',
)
def table_2(published):
  """Return Table 2: FedAvg whose server has data of its own.

  f = 0.1, tau = 10. Varied: the share p of the clients' training images that
  the server has, too, what it trains on them for an epoch after each round
  (all, or the body), s. Printed: before and after fine-tuning. p = 0 is FedAvg
  of Table 1.

  Differs from the paper: whether its column "full" was made so is read off an
  older version of the public code.
  """
  return cell_of_shared_data(published)


@table(
  'Accuracy before fine-tuning, with and without the head',
  rows='shards_per_client client_fraction local_epochs',
  columns='algorithm metric',
  where='shards_per_client=10,local_epochs=10,client_fraction=0.1',
)
def table_3(published):
  """Return Table 3: with the head, and by nearest templates without it.

  Varied: f, tau, s, FedAvg or FedBABU. Printed: accuracy of the global model on
  each client's tests, and that of its features with class means in the place of
  the head. Nothing is fine-tuned. All trainings are those of Table 5.

  Differs from the paper: the nearest mean is that by Euclidean distance, as in
  its public code; its text has cosine.
  """
  return cell_of(published)


@table(
  'Accuracy by the part that is fine-tuned',
  rows='shards_per_client local_epochs',
  columns='algorithm finetune_trainable',
  where='shards_per_client=10,local_epochs=10',
)
def table_4(published):
  """Return Table 4: which part a client fine-tunes.

  f = 0.1. Varied: what is fine-tuned for 5 epochs (body, head, all), tau, s,
  FedBABU (4a) or FedAvg (4b). Printed: accuracy after it. All trainings are
  those of Table 5; each is evaluated three times.
  """
  part = published.variant['finetune_trainable']
  # A run evaluates `full` itself.
  evaluation = {} if part == 'full' else {'finetune.trainable': part}
  return cell_of(published, evaluation=evaluation)


@table(
  'Eight methods on CIFAR-100 with MobileNet, personalised',
  rows='shards_per_client client_fraction local_epochs',
  columns='algorithm',
  where='shards_per_client=10,local_epochs=10,client_fraction=0.1',
)
def table_5(published):
  """Return Table 5: eight methods on CIFAR-100.

  Varied: f, tau, s, the method. Printed: accuracy after personalisation;
  Local-only has neither f nor tau, and stands beside every one.

  Differs from the paper: LG-FedAvg begins with FedAvg's last model (public
  code: its best by TEST accuracy).
  """
  return cell_of(published)


@table(
  'Accuracy by epochs of fine-tuning',
  rows='shards_per_client algorithm',
  columns='finetune_epochs',
  where='shards_per_client=10',
)
def table_6(published):
  """Return Table 6: accuracy by the epochs of fine-tuning.

  f = 0.1, tau = 10. Varied: epochs of fine-tuning (0 to 20), s, FedAvg or
  FedBABU. Printed: accuracy after them. All trainings are those of Table 5; one
  fine-tuning of 20 epochs is evaluated at each of these epochs, but for 0 and
  5, which a run evaluates itself.
  """
  epochs = int(published.variant['finetune_epochs'])
  if epochs in FINETUNE_EPOCHS_OF_A_RUN:
    return cell_of(published)
  last = epochs == FINETUNE_EPOCHS[-1]
  return cell_of(
    published, evaluation={'finetune.epochs': FINETUNE_EPOCHS}
  )._replace(reading=Reading('finetuned' if last else f'finetuned_{epochs}'))


@table(
  'FedProx and FedProx with FedBABU, f = 0.1',
  rows='algorithm local_epochs',
  columns='shards_per_client metric',
  where='shards_per_client=10,local_epochs=10',
)
def table_7(published):
  """Return Table 7: FedProx, and FedProx with a frozen head, f = 0.1.

  mu = 0.01; Table 22 is the same with f = 1.0. Varied: tau, s. Printed: before
  and after 5 epochs of fine-tuning, which is without the proximal term.

  No run with mu = 0.01 alone can be expected to give the printed numbers: there
  the term is far too small for the distance from FedAvg that is printed.
  """
  return cell_of(published)


@table(
  'Centralised models fine-tuned by clients',
  rows='shards_per_client trainable',
  columns='finetune_epochs',
  where='shards_per_client=10,trainable=body',
)
def table_9(published):
  """Return Table 9: centralised models, fine-tuned by clients.

  The whole model, or the body alone, is trained centrally for 10 epochs; then
  100 clients fine-tune it for 0 to 5. Varied: what was trained, s, epochs of
  fine-tuning. Printed: accuracy after them.

  A cell's own training has no round: FedAvg's config evaluates the model that
  it starts from, once for all epochs.
  """
  fields = {
    'rounds': 0,
    'finetune.epochs': CENTRAL_EPOCHS,
    'views': CENTRAL_VIEWS,
  }
  epochs = int(published.variant['finetune_epochs'])
  # The learning rate would drop at epoch 80.
  central = {'total_epochs': 10, 'lr_milestones': ()}
  part = published.variant['trainable']
  return cell_of(published._replace(algorithm='fedavg'), fields)._replace(
    published=published,
    reading=Reading(CENTRAL_VIEWS[epochs]),
    init_from=replaced(
      load_config('fedbabu_cifar100:centralized'),
      {'hp.trainable': part, **central},
    ),
  )


def cell_of(
  published: Published,
  changes: Mapping[str, Any] | None = None,
  evaluation: Mapping[str, Any] | None = None,
) -> Cell:
  """Return the cell of a number in the FedBABU paper.

  `changes` are fields of its training that the method and the setting leave
  open, `evaluation` those of evaluation alone.
  """
  method = METHODS[published.algorithm]
  own = {**_setting(published), **(changes or {})}
  settings = replaced(
    config_of(method.config, published.dataset), {**method.changes, **own}
  )
  start = None
  if method.after:
    before = config_of(METHODS[method.after].config, published.dataset)
    start = replaced(before, own)
  reading = READINGS.get(published.metric, method.personalized)
  return Cell(published, settings, reading, evaluation or {}, start)


def cell_of_shared_data(published: Published) -> Cell:
  """Return the cell of Table 2 or 21; p = 0 leaves the config as it is."""
  share = float(published.variant['server_data_fraction'])
  if not share:
    return cell_of(published)
  part = published.variant['server_trainable']
  return cell_of(
    published, {'server_data_fraction': share, 'server_trainable': part}
  )


def config_of(method: str, dataset: str) -> dict[str, Any]:
  """Return the config of a method in the FedBABU paper on an image set."""
  if dataset != 'emnist':
    return load_config(f'fedbabu_{dataset}:{method}')
  return replaced(load_config(f'fedbabu_cifar100:{method}'), EMNIST)


def _setting(published: Published) -> dict[str, Any]:
  """Return what is printed beside a number; Local-only has no f, no tau."""
  fields = {name: getattr(published, name) for name in SETTING}
  return {name: value for name, value in fields.items() if value is not None}
