"""Your own folder of images, a client a folder: any method, no other flag.

  fedjax-pfl train --config=own_folder:fedbabu \\
      --config.data_dir=DIR --workdir=runs/own

DIR is CLIENT/CLASS/*.png, CLIENT/{train,test}/CLASS/*.png, or a .csv of
path,label,client[,split]. What it holds is printed before training. Each client
has its own images; without a split a fifth of them are for testing. Images are
scaled to 32x32: --config.image_size=64 for others, 0 for none. All clients take
part in each of 40 rounds of one epoch.
"""

from configs import common
from configs.methods import METHODS
from fedjax_pfl.algorithms import available

OWN_DATA = True
FOLDER = {
  'dataset': 'folder',
  'image_size': 32,
  'model': 'convnet4',
  'partition': 'natural',
  'num_clients': 0,  # those of the folder
  'client_fraction': 1.0,
  'rounds': 40,
  'local_epochs': 1,
  'batch_size': 20,
  'learning_rate': 0.02,
  'eval_every': 10,
}
OF_ONE = 'centralized', 'fedconcat'  # they divide the images by themselves
EXPERIMENTS = [name for name in available() if name not in OF_ONE]


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedavg')
  own = METHODS.get(method, {}) | FOLDER
  return common.base(arg, algorithm=method, **own)
