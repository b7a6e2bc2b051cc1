"""The cases of the bench, and the table of models with their targets.

No module of jax, of the package or of PyTorch is needed here: processes of
PyTorch import it, too.
"""

from typing import NamedTuple


class Case(NamedTuple):
  """A setting that is timed; every client has `steps` full batches."""

  model: str
  clients: int = 2  # of a round
  steps: int = 1
  batch: int = 50
  conv_impl: str = 'auto'
  image_shape: tuple[int, int, int] = (32, 32, 3)
  num_classes: int = 10
  epochs: int = 2  # of fine-tuning
  tests: int = 100  # images of a client
  momentum: float = 0.9
  devices: int = 1  # that share the clients

  @property
  def images(self) -> int:
    """Return how many images go through a round."""
    return self.clients * self.steps * self.batch


class Model(NamedTuple):
  """A model of the bars: its cases, each against PyTorch at its best."""

  name: str
  cases: tuple[Case, ...]
  limit: float = 1.25  # x PyTorch
  is_evaluated: bool = False  # its fine-tuning evaluation has a bar, too


# Batch sizes are those of the papers and benchmarks that use the model: FedBABU
# 50, FedConcat 64, SuPerFed 20, PFLlib 10, pfl-research 10. Clients and steps:
# rounds of one to a few seconds on two cores.
MODELS = {
  'convnet4': Model(
    '4convNet',
    (Case('convnet4', 10, 10, 50), Case('convnet4', 8, 8, 10)),
    is_evaluated=True,
  ),
  'mobilenet': Model(
    'MobileNet', (Case('mobilenet', 4, 2, 50),), is_evaluated=True
  ),
  'simple_cnn': Model(
    'simple_cnn',
    (Case('simple_cnn', 8, 8, 64), Case('simple_cnn', 8, 20, 10)),
    limit=1.6,
  ),
  'superfed_cnn': Model(
    'superfed_cnn', (Case('superfed_cnn', 8, 8, 20),), limit=1.6
  ),
  'vgg9': Model('VGG-9', (Case('vgg9', 4, 2, 64),), limit=1.6),
  'fedavg_cnn': Model(
    'plain FedAvgCNN',
    (
      Case('fedavg_cnn', 8, 8, 10, momentum=0.0),
      Case('fedavg_cnn', 8, 4, 50, momentum=0.0),
    ),
  ),
  'pfl_cnn': Model(
    'plain CNN of pfl-research', (Case('pfl_cnn', 50, 5, 10, momentum=0.0),)
  ),
  'resnet18': Model(
    'ResNet-18', (Case('resnet18', 2, 4, 50),), is_evaluated=True
  ),
  'resnet50': Model('ResNet-50', (Case('resnet50', 2, 2, 50),), limit=1.1),
}
