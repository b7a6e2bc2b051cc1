"""A plain PyTorch loop over clients, in a process of its own, as as_typed.py:

  echo | python experiments/benchmarks/torch_loop.py eager convnet4 10 10 50 0.9

Form, model, clients, batches of a client, batch size, momentum; if wanted the
work, training or evaluation, and a number of threads. For every line that it
reads it runs the work of all clients, and prints its seconds, or the error.

Images are normalised floats in memory, without a data pipeline. One network
takes the server's parameters for each client, so that it is compiled once.
yardstick.py chooses the form, and among how many processes of one thread the
clients are dealt; their sums are not added up, which would take PyTorch longer.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.benchmarks.cases import Case
from experiments.benchmarks.torch_models import MODELS

TEST_BATCH = 128  # as ours: fedjax_pfl/evaluation/metrics.py
GRAPHS = {'graph': 1, 'streams': 4}  # networks that are trained side by side
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'


class Side(NamedTuple):
  """A case as PyTorch runs it: equal clients with random images."""

  case: Case
  form: str  # 'eager', 'channels_last', 'compiled', or of GRAPHS

  @property
  def is_last(self) -> bool:
    return self.form == 'channels_last' or self.form in GRAPHS

  def images(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images [..., 3, 32, 32] and labels."""
    if self.is_last:
      x = torch.randn(*shape, 32, 32, 3, device=DEVICE).movedim(-1, -3)
    else:
      x = torch.randn(*shape, 3, 32, 32, device=DEVICE)
    return x, torch.randint(self.case.num_classes, shape, device=DEVICE)

  def network(self) -> nn.Module:
    torch.manual_seed(0)
    net = MODELS[self.case.model](self.case.num_classes).to(DEVICE)
    return net.to(memory_format=torch.channels_last) if self.is_last else net

  def sgd(self, net: nn.Module, rate: float = 0.1) -> torch.optim.SGD:
    momentum = self.case.momentum
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)


def make_work(side: Side, work: str) -> Callable[[], None]:
  """Return a function that fits a model for every client, and sums them up.

  Of training it is the sum of the models, of evaluation that of the correctly
  classified tests after fine-tuning.
  """
  case, server, net = side.case, side.network(), side.network()
  if side.form in GRAPHS:
    return _make_graphs(side)
  forward = torch.compile(net) if side.form == 'compiled' else net
  x, y = side.images(case.clients, case.steps, case.batch)
  if work == 'evaluation':
    tests = [*zip(*side.images(case.clients, case.tests), strict=True)]

  def fit(client, rate, epochs):
    net.load_state_dict(server.state_dict())
    sgd = side.sgd(net, rate)
    net.train()
    for _ in range(epochs):
      for images, labels in zip(x[client], y[client], strict=True):
        sgd.zero_grad()
        nn.functional.cross_entropy(forward(images), labels).backward()
        sgd.step()

  def run():
    totals, correct = [torch.zeros_like(leaf) for leaf in parameters(net)], 0
    for client in range(case.clients):
      if work == 'evaluation':
        fit(client, 1e-3, case.epochs)
        correct += test(net, forward, *tests[client])
      else:
        fit(client, 0.1, 1)
        add(totals, parameters(net))
    if DEVICE == 'cuda':
      torch.cuda.synchronize()

  return run


@torch.no_grad()
def test(net, forward, x, y):
  """Return the number of correctly classified images of [N, 3, H, W]."""
  net.eval()
  batches = zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True)
  return sum(
    (forward(images).argmax(1) == labels).sum() for images, labels in batches
  )


def parameters(net):
  return [leaf.detach() for leaf in net.parameters()]


def add(totals, leaves):
  for total, leaf in zip(totals, leaves, strict=True):
    total += leaf


# ---- training as CUDA graphs


def _make_graphs(side: Side) -> Callable[[], None]:
  """Return the training of a round: a step with SGD is one CUDA graph.

  In TF32, channels last; of several networks each has its graph and stream.
  """
  torch.set_float32_matmul_precision('high')
  case, server = side.case, side.network()
  x, y = side.images(case.clients, case.steps, case.batch)
  lanes = [_Lane(side, x[0, 0], y[0, 0]) for _ in range(GRAPHS[side.form])]

  def run():
    torch.cuda.synchronize()
    for first in range(0, case.clients, len(lanes)):
      turn = [*zip(lanes, range(first, case.clients), strict=False)]
      for lane, _ in turn:
        lane.begin(server)
      for step in range(case.steps):
        for lane, client in turn:
          lane.step(x[client, step], y[client, step])
      for lane, _ in turn:
        lane.add()
    torch.cuda.synchronize()
    totals = [torch.zeros_like(leaf) for leaf in parameters(server)]
    for lane in lanes:
      add(totals, lane.total)
      for leaf in lane.total:
        leaf.zero_()

  return run


class _Lane:
  """A network, its optimiser, and its step as a CUDA graph on a stream."""

  def __init__(self, side, x, y):
    self.net, self.stream = side.network().train(), torch.cuda.Stream()
    self.x, self.y, self.sgd = x.clone(), y.clone(), side.sgd(self.net)
    self.total = [torch.zeros_like(leaf) for leaf in parameters(self.net)]
    self.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(self.stream):
      for _ in range(3):  # makes momenta, and chooses kernels
        self._train()
    torch.cuda.synchronize()
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph, stream=self.stream):
      self._train()

  def _train(self):
    self.sgd.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(self.net(self.x), self.y).backward()
    self.sgd.step()

  @torch.no_grad()
  def begin(self, server):
    with torch.cuda.stream(self.stream):
      self.net.load_state_dict(server.state_dict())
      for state in self.sgd.state.values():
        if state.get('momentum_buffer') is not None:
          state['momentum_buffer'].zero_()

  def step(self, x, y):
    with torch.cuda.stream(self.stream):
      self.x.copy_(x)
      self.y.copy_(y)
      self.graph.replay()

  def add(self):
    with torch.cuda.stream(self.stream):
      add(self.total, parameters(self.net))


def main(form, model, clients, steps, batch, momentum, work='', threads='0'):
  if DEVICE == 'cpu' and form in GRAPHS:
    sys.exit(f'{form} needs a GPU')
  if threads != '0':
    torch.set_num_threads(int(threads))
  clients, steps, batch = map(int, (clients, steps, batch))
  case, run = Case(model, clients, steps, batch, momentum=float(momentum)), None
  for _ in sys.stdin:
    began = time.perf_counter()
    try:
      run = run or make_work(Side(case, form), work)
      run()
    except Exception as error:  # torch.compile without a compiler, say
      print(f'{type(error).__name__}: {str(error).strip()}')
      sys.exit(1)
    print(time.perf_counter() - began, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
