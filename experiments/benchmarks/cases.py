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
  limit: float  # x PyTorch
  is_evaluated: bool  # its fine-tuning evaluation has a bar, too


# Batch sizes are those of the papers and benchmarks that use the model: FedBABU
# 50, FedConcat 64, SuPerFed 20, PFLlib 10, pfl-research 10. Clients and steps:
# rounds of one to a few seconds on two cores.
# Of each: name, times PyTorch, and (clients, steps, batch) of its cases.
ROWS = {
  'convnet4': ('4convNet', 1.25, (10, 10, 50), (8, 8, 10)),
  'mobilenet': ('MobileNet', 1.25, (4, 2, 50)),
  'simple_cnn': ('simple_cnn', 1.6, (8, 8, 64), (8, 20, 10)),
  'superfed_cnn': ('superfed_cnn', 1.6, (8, 8, 20)),
  'vgg9': ('VGG-9', 1.6, (4, 2, 64)),
  'fedavg_cnn': ('plain FedAvgCNN', 1.25, (8, 8, 10), (8, 4, 50)),
  'pfl_cnn': ('plain CNN of pfl-research', 1.25, (50, 5, 10)),
  'resnet18': ('ResNet-18', 1.25, (2, 4, 50)),
  'resnet50': ('ResNet-50', 1.1, (2, 2, 50)),
}
EVALUATED = 'convnet4', 'mobilenet', 'resnet18'
MOMENTUM = {'fedavg_cnn': 0.0, 'pfl_cnn': 0.0}  # of their benchmarks; else 0.9


def _model(model: str, name: str, limit: float, *sizes: tuple) -> Model:
  momentum = MOMENTUM.get(model, 0.9)
  cases = tuple(Case(model, *size, momentum=momentum) for size in sizes)
  return Model(name, cases, limit, model in EVALUATED)


MODELS = {model: _model(model, *row) for model, row in ROWS.items()}
