"""A plain sequential PyTorch loop over clients, in one process.

Images are normalised floats in memory, without a data pipeline. One network
takes the server's parameters for each client, so that it is compiled once.
yardstick.py chooses the form of the network; it and torch_workers.py alone
import this file, which needs PyTorch.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from experiments.benchmarks.torch_models import MODELS

TEST_BATCH = 128  # as ours: fedjax_pfl/evaluation/metrics.py

Totals = list[torch.Tensor]


class Clients(NamedTuple):
  """The timed work: equal clients with random images."""

  model: str
  clients: int
  steps: int
  batch: int
  num_classes: int = 10
  epochs: int = 2  # of fine-tuning
  tests: int = 100  # images of a client
  momentum: float = 0.9
  device: str = 'cpu'
  form: str = 'eager'  # or 'channels_last', 'compiled'

  def images(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images [..., 3, 32, 32] and labels."""
    if self.form == 'channels_last':
      x = torch.randn(*shape, 32, 32, 3, device=self.device).movedim(-1, -3)
    else:
      x = torch.randn(*shape, 3, 32, 32, device=self.device)
    return x, torch.randint(self.num_classes, shape, device=self.device)

  def network(self) -> nn.Module:
    torch.manual_seed(0)
    net = MODELS[self.model](self.num_classes).to(self.device)
    if self.form == 'channels_last':
      return net.to(memory_format=torch.channels_last)
    return net

  def forward(self, net: nn.Module) -> Callable:
    """Return the network as it is called."""
    return torch.compile(net) if self.form == 'compiled' else net


def make_round(case: Clients) -> Callable[[], Totals]:
  """Return a function that trains every client and sums the models."""
  server, net = case.network(), case.network()
  forward = case.forward(net)
  x, y = case.images(case.clients, case.steps, case.batch)

  def run():
    totals = [torch.zeros_like(leaf) for leaf in _parameters(server)]
    for client in range(case.clients):
      net.load_state_dict(server.state_dict())
      train(case, net, forward, x[client], y[client], learning_rate=0.1)
      for total, leaf in zip(totals, _parameters(net), strict=True):
        total += leaf
    wait(case.device)
    return totals

  return run


def make_evaluation(case: Clients) -> Callable[[], Totals]:
  """Return a function that fine-tunes a model for every client and tests it."""
  server, net = case.network(), case.network()
  forward = case.forward(net)
  x, y = case.images(case.clients, case.steps, case.batch)
  test_x, test_y = case.images(case.clients, case.tests)

  def run():
    correct = torch.zeros((), dtype=torch.int64, device=case.device)
    for client in range(case.clients):
      net.load_state_dict(server.state_dict())
      rate, epochs = 1e-3, case.epochs
      train(case, net, forward, x[client], y[client], rate, epochs)
      correct += test(net, forward, test_x[client], test_y[client])
    wait(case.device)
    return [correct]

  return run


WORKS = {'training': make_round, 'evaluation': make_evaluation}


def train(case, net, forward, x, y, learning_rate, epochs=1):
  """Train on the batches of one client, x [steps, B, 3, H, W]."""
  sgd = torch.optim.SGD(
    net.parameters(), lr=learning_rate, momentum=case.momentum
  )
  net.train()
  for _ in range(epochs):
    for images, labels in zip(x, y, strict=True):
      sgd.zero_grad()
      nn.functional.cross_entropy(forward(images), labels).backward()
      sgd.step()


@torch.no_grad()
def test(net, forward, x, y):
  """Return the number of correctly classified images of [N, 3, H, W]."""
  net.eval()
  batches = zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True)
  return sum(
    (forward(images).argmax(1) == labels).sum() for images, labels in batches
  )


def wait(device):
  if device == 'cuda':
    torch.cuda.synchronize()


def _parameters(net):
  return [leaf.detach() for leaf in net.parameters()]
