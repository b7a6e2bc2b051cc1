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

from experiments.benchmarks.cases import Case
from experiments.benchmarks.torch_models import MODELS

TEST_BATCH = 128  # as ours: fedjax_pfl/evaluation/metrics.py

Totals = list[torch.Tensor]


class Side(NamedTuple):
  """A case as PyTorch runs it: equal clients with random images."""

  case: Case
  form: str  # 'eager', 'channels_last' or 'compiled'
  device: str = 'cpu'

  def images(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images [..., 3, 32, 32] and labels."""
    if self.form == 'channels_last':
      x = torch.randn(*shape, 32, 32, 3, device=self.device).movedim(-1, -3)
    else:
      x = torch.randn(*shape, 3, 32, 32, device=self.device)
    return x, torch.randint(self.case.num_classes, shape, device=self.device)

  def network(self) -> nn.Module:
    torch.manual_seed(0)
    net = MODELS[self.case.model](self.case.num_classes).to(self.device)
    if self.form == 'channels_last':
      return net.to(memory_format=torch.channels_last)
    return net


def make_round(side: Side) -> Callable[[], Totals]:
  """Return a function that trains every client and sums the models."""
  _, trained = _make_fit(side, learning_rate=0.1, epochs=1)
  zeros = [torch.zeros_like(leaf) for leaf in parameters(side.network())]

  def run():
    totals = [leaf.clone() for leaf in zeros]
    for client in range(side.case.clients):
      for total, leaf in zip(totals, parameters(trained(client)), strict=True):
        total += leaf
    wait(side.device)
    return totals

  return run


def make_evaluation(side: Side) -> Callable[[], Totals]:
  """Return a function that fine-tunes a model for every client and tests it."""
  case = side.case
  forward, trained = _make_fit(side, learning_rate=1e-3, epochs=case.epochs)
  x, y = side.images(case.clients, case.tests)

  def run():
    correct = torch.zeros((), dtype=torch.int64, device=side.device)
    for client in range(case.clients):
      correct += test(trained(client), forward, x[client], y[client])
    wait(side.device)
    return [correct]

  return run


WORKS = {'training': make_round, 'evaluation': make_evaluation}


def _make_fit(
  side: Side, learning_rate: float, epochs: int
) -> tuple[Callable, Callable[[int], nn.Module]]:
  """Return the network as it is called, and client -> the trained network."""
  case, server, net = side.case, side.network(), side.network()
  forward = torch.compile(net) if side.form == 'compiled' else net
  x, y = side.images(case.clients, case.steps, case.batch)

  def trained(client):
    net.load_state_dict(server.state_dict())
    sgd = torch.optim.SGD(
      net.parameters(), lr=learning_rate, momentum=case.momentum
    )
    net.train()
    for _ in range(epochs):
      for images, labels in zip(x[client], y[client], strict=True):
        sgd.zero_grad()
        nn.functional.cross_entropy(forward(images), labels).backward()
        sgd.step()
    return net

  return forward, trained


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


def parameters(net):
  return [leaf.detach() for leaf in net.parameters()]
