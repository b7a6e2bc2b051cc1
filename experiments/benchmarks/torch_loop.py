"""A plain PyTorch loop over clients: in one process, or in one a core.

Images are normalised floats in memory, without a data pipeline. One network
takes the server's parameters for each client, so that it is compiled once.
yardstick.py chooses the form of the network; it alone imports this file, which
needs PyTorch.

Of several processes each has one thread, and a share of the clients. They are
started before anything is timed, and wait at a pipe. Each leaves its sums in
memory that is shared with the first process, which adds them up: what a round
needs from them, once.
"""

import multiprocessing
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from experiments.benchmarks.cases import Case
from experiments.benchmarks.torch_models import MODELS

TEST_BATCH = 128  # as ours: fedjax_pfl/evaluation/metrics.py
PATIENCE = 300  # seconds for a first call, which compiles

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


# ---- one process


def make_work(side: Side, work: str) -> Callable[[], Totals]:
  """Return a function that fits a model for every client, and the sum.

  Of training it is the sum of the models, of evaluation that of the correctly
  classified tests after fine-tuning.
  """
  case, zeros = side.case, make_totals(side, work)
  if work == 'training':
    _, fitted = _make_fit(side, learning_rate=0.1, epochs=1)
  else:
    forward, fitted = _make_fit(side, learning_rate=1e-3, epochs=case.epochs)
    x, y = side.images(case.clients, case.tests)

  def result(client):
    net = fitted(client)
    if work == 'training':
      return parameters(net)
    return [test(net, forward, x[client], y[client])]

  def run():
    totals = [zero.to(side.device, copy=True) for zero in zeros]
    for client in range(case.clients):
      for total, one in zip(totals, result(client), strict=True):
        total += one
    if side.device == 'cuda':
      torch.cuda.synchronize()
    return totals

  return run


def make_totals(side: Side, work: str) -> Totals:
  """Return zeros in the place of the sums."""
  if work == 'training':
    return [torch.zeros_like(leaf) for leaf in parameters(side.network())]
  return [torch.zeros((), dtype=torch.int64)]


def _make_fit(
  side: Side, learning_rate: float, epochs: int
) -> tuple[Callable, Callable[[int], nn.Module]]:
  """Return the network as it is called, and client -> the trained network."""
  case, server, net = side.case, side.network(), side.network()
  forward = torch.compile(net) if side.form == 'compiled' else net
  x, y = side.images(case.clients, case.steps, case.batch)

  def fitted(client):
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

  return forward, fitted


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


# ---- processes


def start(
  side: Side, work: str, processes: int
) -> tuple[Callable[[], Totals], Callable[[], None]]:
  """Return (run, close) of so many processes, or of this one if it is 0.

  A run returns the sums over the clients of all processes.
  """
  if not processes:
    return make_work(side, work), lambda: None
  context = multiprocessing.get_context('spawn')
  parts, pipes, started = [], [], []
  for first in range(processes):
    own, theirs = context.Pipe()
    totals = [leaf.share_memory_() for leaf in make_totals(side, work)]
    clients = len(range(first, side.case.clients, processes))
    share = side._replace(case=side.case._replace(clients=clients))
    process = context.Process(
      target=_serve,
      args=(share, work, totals, theirs),
      daemon=True,  # ends with this one
    )
    process.start()
    theirs.close()  # so that the death of the process is the end of the pipe
    parts.append(totals)
    pipes.append(own)
    started.append(process)

  def run():
    for pipe in pipes:
      pipe.send('run')
    for pipe in pipes:
      if error := _answer(pipe):
        raise RuntimeError(error)
    return [sum(leaves) for leaves in zip(*parts, strict=True)]

  def close():
    for pipe in pipes:
      pipe.close()
    for process in started:
      process.join()

  return run, close


def _answer(pipe) -> str:
  """Return the error of a process, '' for none."""
  try:
    return pipe.recv() if pipe.poll(PATIENCE) else 'a process does not answer'
  except EOFError:
    return 'a process has ended'


def _serve(side, work, totals, pipe):
  """Answer every message with one run, until the pipe is closed."""
  torch.set_num_threads(1)
  run = make_work(side, work)
  while True:
    try:
      pipe.recv()
    except EOFError:
      return
    try:
      for total, leaf in zip(totals, run(), strict=True):
        total.copy_(leaf)
      pipe.send('')
    except Exception as error:  # is raised in the first process
      pipe.send(f'{type(error).__name__}: {error}')
