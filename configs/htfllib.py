"""HtFLlib's benchmark of clients with different models.

  fedjax-pfl train --config=htfllib:cifar100,fedproto \\
      --workdir=runs/htfllib_fedproto

or another METHOD, and the sets and divisions of configs/pfllib.py; CIFAR-100 by
Dir(0.1) without other words. Rates and what a method has of its own are those
of its script `total.sh`, at e959261: 20 clients, all in each round, an epoch of
SGD at 0.01, batches of 10, features pooled to 512, three seeds. The shared
model of FML and FedKD is that of client 0.

Of its groups of models this is HtFE-img-2, a CNN and ResNet-18 with the stem
for ImageNet, in turn. The others have GoogLeNet, MobileNetV2, ResNet-34 or
larger, which are not here. Its numbers are in no file of its code, and are not
among the published ones.

Differs from that code: BatchNorm has the statistics of the batch; 2,000 rounds,
its default, where the script stops 100 rounds after the best on the tests; the
last batch of an epoch is trained on, too; FedGen's generator is trained.
"""

from configs import common, pfllib

GROUP = {  # HtFE-img-2
  'models': ('fedavg_cnn', 'resnet18_imagenet'),
  'model': 'fedavg_cnn',
  'feature_width': 512,
  'learning_rate': 0.01,
}
GENERATOR = {'shared': 'head', 'hidden': 512, 'server_learning_rate': 0.1}
STUDENT = {'student': 'fedavg_cnn'}
# The view that is printed, of each method; and what is not the default.
METHODS = {
  'fd': ('personal', {}),
  'fedgen': ('initial', {'hp': GENERATOR}),
  'fedgh': ('initial', {'hp': {'server_epochs': 1}}),
  'fedkd': ('personal', {'hp': STUDENT}),
  'fedproto': ('prototypes', {'hp': {'lam': 10.0}}),
  'fedtgp': ('prototypes', {}),
  'fml': ('personal', {'hp': STUDENT}),
  # Its rounds are a quarter of those of the FedAvg that it leaves out.
  'lg_fedavg': ('initial', {'hp': {'train_fedavg': False}, 'rounds': 8000}),
  'local_only': ('personal', {}),
}
EXPERIMENTS = tuple(f'cifar100,{method}' for method in METHODS)


def get_config(arg=''):
  words = arg.split(',')
  if not {*words} & {*pfllib.SETS}:
    words.append('cifar100')
  data, rest = pfllib.data_of(words)
  method, quick = common.choose(rest, METHODS, default='fedproto')
  view, changes = METHODS[method]
  own = {'algorithm': method, 'views': (view,), 'eval_views': (view,)}
  return common.base(quick, **pfllib.PROTOCOL | data | GROUP | own | changes)
