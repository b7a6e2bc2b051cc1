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
from experiments.reproduction.cells import Cell, Published, Reading, replaced

SETTING = (
  *('model', 'num_clients', 'shards_per_client', 'client_fraction'),
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
# Of fine-tuning a centralised model, in Table 9: for 0 to 5 epochs.
CENTRAL_VIEWS = (
  *('initial', 'finetuned_1', 'finetuned_2', 'finetuned_3', 'finetuned_4'),
  'finetuned',
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
  setting = {name: getattr(published, name) for name in SETTING}
  # Local-only has no f, no tau.
  own = {name: value for name, value in setting.items() if value is not None}
  own |= changes or {}
  config = config_of(method.config, published.dataset)
  settings, start = replaced(config, {**method.changes, **own}), None
  if method.after:
    start = replaced(config_of(method.after, published.dataset), own)
  reading = READINGS.get(published.metric, method.personalized)
  return Cell(published, settings, reading, evaluation or {}, start)


def config_of(method: str, dataset: str) -> dict[str, Any]:
  """Return the config of a method in the FedBABU paper on an image set."""
  if dataset != 'emnist':
    return load_config(f'fedbabu_{dataset}:{method}')
  return replaced(load_config(f'fedbabu_cifar100:{method}'), EMNIST)


def cell_of_shared_data(published: Published) -> Cell:
  """Return the cell of Table 2 or 21; p = 0 leaves the config as it is."""
  share = float(published.variant['server_data_fraction'])
  if not share:
    return cell_of(published)
  part = published.variant['server_trainable']
  return cell_of(
    published, {'server_data_fraction': share, 'server_trainable': part}
  )


def cell_of_part(published: Published) -> Cell:
  """Return the cell of Table 4; a run evaluates the whole model itself."""
  part = published.variant['finetune_trainable']
  evaluation = {} if part == 'full' else {'finetune.trainable': part}
  return cell_of(published, evaluation=evaluation)


def cell_of_epochs(published: Published) -> Cell:
  """Return the cell of Table 6; a run evaluates 0 and 5 epochs itself."""
  epochs = int(published.variant['finetune_epochs'])
  if epochs in (0, 5):
    return cell_of(published)
  last = epochs == FINETUNE_EPOCHS[-1]
  return cell_of(
    published, evaluation={'finetune.epochs': FINETUNE_EPOCHS}
  )._replace(reading=Reading('finetuned' if last else f'finetuned_{epochs}'))


def cell_of_central_model(published: Published) -> Cell:
  """Return the cell of Table 9.

  Its own training has no round: FedAvg's config evaluates the model that it
  starts from, once for all epochs.
  """
  variant = published.variant
  cell = cell_of(
    published._replace(algorithm='fedavg'),
    {'rounds': 0, 'finetune.epochs': (1, 2, 3, 4, 5), 'views': CENTRAL_VIEWS},
  )
  # The learning rate would drop at epoch 80.
  central = {'total_epochs': 10, 'lr_milestones': ()}
  start = replaced(
    load_config('fedbabu_cifar100:centralized'),
    {'hp.trainable': variant['trainable'], **central},
  )
  view = CENTRAL_VIEWS[int(variant['finetune_epochs'])]
  return cell._replace(
    published=published, reading=Reading(view), init_from=start
  )


S_F_TAU = 'shards_per_client client_fraction local_epochs'
TABLES = {
  # All trainings are FedAvg's of Tables 3 and 5.
  '1': table(
    'FedAvg on CIFAR-100 with MobileNet, before and after fine-tuning',
    'client_fraction local_epochs | shards_per_client metric',
    cell_of,
  ),
  # f = 0.1, tau = 10. The server has a share p of the clients' training images,
  # too, and trains on them for an epoch after each round: all, or the body.
  # p = 0 is FedAvg of Table 1. Differs from the paper: whether its column
  # "full" was made so is read off an older version of the public code.
  '2': table(
    'FedAvg with data shared with the server',
    'server_data_fraction server_trainable | shards_per_client metric',
    cell_of_shared_data,
  ),
  # Accuracy of the global model on each client's tests, and that of its
  # features with class means in the place of the head; nothing is fine-tuned.
  # All trainings are those of Table 5. Differs from the paper: the nearest mean
  # is that by Euclidean distance, as in its public code; its text has cosine.
  '3': table(
    'Accuracy before fine-tuning, with and without the head',
    f'{S_F_TAU} | algorithm metric',
    cell_of,
  ),
  # f = 0.1. What is fine-tuned for 5 epochs (body, head, all), of FedBABU (4a)
  # and FedAvg (4b). All trainings are those of Table 5, evaluated three times.
  '4': table(
    'Accuracy by the part that is fine-tuned',
    'shards_per_client local_epochs | algorithm finetune_trainable',
    cell_of_part,
  ),
  # Local-only has neither f nor tau, and stands beside every one. Differs from
  # the paper: LG-FedAvg begins with FedAvg's last model (public code: its best
  # by TEST accuracy).
  '5': table(
    'Eight methods on CIFAR-100 with MobileNet, personalised',
    f'{S_F_TAU} | algorithm',
    cell_of,
  ),
  # f = 0.1, tau = 10. All trainings are those of Table 5; one fine-tuning of 20
  # epochs is evaluated at each printed number of epochs.
  '6': table(
    'Accuracy by epochs of fine-tuning',
    'shards_per_client algorithm | finetune_epochs',
    cell_of_epochs,
  ),
  # mu = 0.01; fine-tuning is without the proximal term. Table 22 is the same
  # with f = 1.0. No run with mu = 0.01 alone can be expected to give the
  # printed numbers: there the term is far too small for the distance from
  # FedAvg that is printed.
  '7': table(
    'FedProx and FedProx with FedBABU, f = 0.1',
    'algorithm local_epochs | shards_per_client metric',
    cell_of,
  ),
  # The whole model, or the body alone, is trained centrally for 10 epochs; then
  # 100 clients fine-tune it for 0 to 5.
  '9': table(
    'Centralised models fine-tuned by clients',
    'shards_per_client trainable | finetune_epochs',
    cell_of_central_model,
  ),
}
