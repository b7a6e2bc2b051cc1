"""All methods on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/digits.py:fedbabu --workdir=runs/x

or another METHOD, `configs/digits.py:METHOD`; FedBABU by default. 20 clients
with 2 shards each; five take part in a round. Half a minute to a minute on 2
CPU cores. Prints accuracy, mean and std over clients:

  METHOD       view initial    another view
  apfl         44.1 +- 33.4    82.1 +- 28.4 personal; the global model is
                               FedAvg's
  centralized                  one client holds all images; a round is an epoch
  ditto        44.1 +- 33.4    97.8 +- 3.3 personal; the global model is
                               FedAvg's
  fedavg
  fedbabu
  fedconcat                    2 classes a client, 3 clusters; FedConcat-ID,
                               which infers the clients' label distributions:
                               --config.hp.distributions=inferred
  fedlc        51.7 +- 25.3    96.4 +- 3.7 finetuned; a client has about as many
                               examples of one of its classes as of the other,
                               so only the exclusion of absent classes acts
  fedper       99.2 +- 2.0     99.2 +- 2.0 finetuned; with the own head, hardly
                               anything is left to learn
  fedprox      49.3 +- 32.4    89.6 +- 10.9 finetuned
  fedrep       98.6 +- 3.0     98.9 +- 2.3 finetuned; as for FedPer
  fedrs        69.6 +- 19.8    95.8 +- 4.7 finetuned
  lg_fedavg                    16 rounds of FedAvg, then 4 of LG-FedAvg
  local_only                   a round is an epoch of all clients; prints the
                               accuracy after the last, result.json has the best
                               on the test set
  moon         32.1 +- 27.6    42.0 +- 31.5 finetuned, 76.2, 61.5 with seeds 1
                               and 2; rounding alone moves it: 81.3, 71.7, 44.4
                               with --config.conv_impl=lax. FedAvg with
                               --config.hp.mu=0
  per_fedavg   72.1 +- 22.0    73.0 +- 21.6 adapted, by one step on a client's
                               training data
  pfedme       74.3 +- 21.3    99.2 +- 2.0 personal; momentum is not used
  scaffold     51.6 +- 25.6    75.8 +- 21.5 finetuned
  superfed     52.3 +- 27.5    85.5 +- 29.7 mix_0.5, 88.9 +- 25.1 mix_1.0; some
                               clients never train their own model in the ten
                               rounds of personalisation. SuPerFed-LM, a lambda
                               for each layer (--config.hp.mixing=layer):
                               41.9 +- 27.0, 88.6 +- 21.8 and 82.9 +- 30.1
"""

from configs import common
from configs.methods import METHODS

IMAGES = {
  'dataset': 'digits',
  'model': 'convnet3',  # 8x8 pixels allow three poolings
}
SHARDS = {
  'num_clients': 20,
  'shards_per_client': 2,
  'client_fraction': 0.25,
  'total_epochs': 80,  # of LG-FedAvg's FedAvg; a quarter as many follow
  'local_epochs': 5,
  'batch_size': 20,  # a client has about 72 images
  'finetune': {'batch_size': 20},
}
SPECIAL = {
  'centralized': {'total_epochs': 20, 'batch_size': 32, 'learning_rate': 0.05},
  'fedconcat': {
    'hp': {'clusters': 3, 'classifier_rounds': 60, 'noise_inputs': 1000},
    'partition': 'classes',
    'num_clients': 20,
    'client_fraction': 0.5,
    'total_epochs': 60,
    'local_epochs': 5,
    'batch_size': 20,
    'lr_milestones': (),  # the classifier begins after the encoders' last round
    'log_every': 3,
    'views': ('initial',),
  },
  'local_only': {
    'num_clients': 20,
    'shards_per_client': 2,
    'total_epochs': 40,
    'log_every': 5,  # a dispatch costs as much as a round of so few images
    'eval_every': 5,
  },
  'superfed': SHARDS | {'views': ('initial', 'mix_0.5', 'mix_1.0')},
}
EXPERIMENTS = {name: SPECIAL.get(name, SHARDS) for name in common.methods()}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedbabu')
  changes = IMAGES | METHODS.get(method, {}) | EXPERIMENTS[method]
  return common.base(arg, algorithm=method, **changes)
