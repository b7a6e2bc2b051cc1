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
GRAPHS = {'graph': 1, 'streams': 4}  # networks that are trained side by side


class Side(NamedTuple):
  """A case as PyTorch runs it: equal clients with random images."""

  case: Case
  form: str  # 'eager', 'channels_last', 'compiled', or of GRAPHS
  device: str = 'cpu'

  @property
  def is_last(self) -> bool:
    return self.form == 'channels_last' or self.form in GRAPHS

  def images(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images [..., 3, 32, 32] and labels."""
    if self.is_last:
      x = torch.randn(*shape, 32, 32, 3, device=self.device).movedim(-1, -3)
    else:
      x = torch.randn(*shape, 3, 32, 32, device=self.device)
    return x, torch.randint(self.case.num_classes, shape, device=self.device)

  def network(self) -> nn.Module:
    torch.manual_seed(0)
    net = MODELS[self.case.model](self.case.num_classes).to(self.device)
    if self.is_last:
      return net.to(memory_format=torch.channels_last)
    return net


# ---- one process


def make_work(side: Side, work: str) -> Callable[[], Totals]:
  """Return a function that fits a model for every client, and the sum.

  Of training it is the sum of the models, of evaluation that of the correctly
  classified tests after fine-tuning.
  """
  case, zeros = side.case, make_totals(side, work)
  if side.form in GRAPHS:
    return _make_graphs(side, zeros)
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


def _make_graphs(side: Side, zeros: Totals) -> Callable[[], Totals]:
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
    totals = [zero.to(side.device, copy=True) for zero in zeros]
    for lane in lanes:
      for total, own in zip(totals, lane.total, strict=True):
        total += own
        own.zero_()
    return totals

  return run


class _Lane:
  """A network, its optimiser, and its step as a CUDA graph on a stream."""

  def __init__(self, side, x, y):
    self.net, self.stream = side.network().train(), torch.cuda.Stream()
    self.x, self.y = x.clone(), y.clone()
    self.sgd = torch.optim.SGD(
      self.net.parameters(), lr=0.1, momentum=side.case.momentum
    )
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
      for own, first in zip(
        parameters(self.net), parameters(server), strict=True
      ):
        own.copy_(first)
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
      for total, own in zip(self.total, parameters(self.net), strict=True):
        total += own


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
