"""The baseline of bench.py: plain sequential PyTorch loops over clients.

Usual networks: NCHW, batch statistics, SGD with momentum. Images are normalised
floats on the device, without a data pipeline. Only bench.py imports this file,
which needs PyTorch.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

TEST_BATCH = 128  # as ours: fedjax_pfl/evaluation/metrics.py


def norm(width):
  return nn.BatchNorm2d(width, track_running_stats=False)


def conv3(inputs, outputs, stride=1, groups=1, bias=False):
  return nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=bias)


def convnet4(num_classes):
  parts, width = [], 3
  for _ in range(4):
    parts += [conv3(width, 64, bias=True), norm(64), nn.ReLU(), nn.MaxPool2d(2)]
    width = 64
  return nn.Sequential(*parts, nn.Flatten(), nn.Linear(256, num_classes))


def mobilenet(num_classes):
  widths = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
  strides = (1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1)
  parts, width = [conv3(3, 32), norm(32), nn.ReLU()], 32
  for outputs, stride in zip(widths, strides, strict=True):
    parts += [conv3(width, width, stride, width), norm(width), nn.ReLU()]
    parts += [nn.Conv2d(width, outputs, 1, bias=False), norm(outputs)]
    parts += [nn.ReLU()]
    width = outputs
  parts += [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, num_classes)]
  return nn.Sequential(*parts)


class BasicBlock(nn.Module):
  def __init__(self, inputs, outputs, stride):
    super().__init__()
    self.body = nn.Sequential(
      conv3(inputs, outputs, stride),
      norm(outputs),
      nn.ReLU(),
      conv3(outputs, outputs),
      norm(outputs),
    )
    self.shortcut = nn.Identity()
    if stride != 1 or inputs != outputs:
      project = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
      self.shortcut = nn.Sequential(project, norm(outputs))

  def forward(self, x):
    return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(num_classes):
  parts, width = [conv3(3, 64), norm(64), nn.ReLU()], 64
  for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
    parts += [BasicBlock(width, outputs, stride)]
    parts += [BasicBlock(outputs, outputs, 1)]
    width = outputs
  parts += [nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, num_classes)]
  return nn.Sequential(*parts)


def simple_cnn(num_classes):
  conv = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
  conv += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
  dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
  return nn.Sequential(*conv, *dense, nn.Linear(84, num_classes))


def superfed_cnn(num_classes):
  parts, width = [], 3
  for outputs, size in ((32, 5), (64, 5), (32, 3)):
    parts += [nn.Conv2d(width, outputs, size), nn.ReLU(), nn.MaxPool2d(2)]
    width = outputs
  parts += [nn.Flatten(), nn.Linear(32, 512), nn.ReLU()]
  return nn.Sequential(*parts, nn.Linear(512, num_classes))


def vgg9(num_classes):
  parts, width = [], 3
  for outputs, *rest in (
    (32,), (64, nn.MaxPool2d(2)),
    (128,), (128, nn.MaxPool2d(2), nn.Dropout2d(0.05)),
    (256,), (256, nn.MaxPool2d(2)),
  ):  # fmt: skip
    parts += [conv3(width, outputs, bias=True), nn.ReLU(), *rest]
    width = outputs
  parts += [nn.Flatten(), nn.Dropout(0.1), nn.Linear(4096, 512), nn.ReLU()]
  parts += [nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1)]
  return nn.Sequential(*parts, nn.Linear(512, num_classes))


MODELS = {
  'convnet4': convnet4,
  'mobilenet': mobilenet,
  'resnet18': resnet18,
  'simple_cnn': simple_cnn,
  'superfed_cnn': superfed_cnn,
  'vgg9': vgg9,
}


class Clients(NamedTuple):
  """The timed work: equal clients with random images."""

  model: str
  clients: int
  steps: int
  batch: int
  num_classes: int = 10
  epochs: int = 2  # of fine-tuning
  tests: int = 100  # images of a client
  device: str = 'cpu'

  def images(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and labels."""
    x = torch.randn(*shape, 3, 32, 32, device=self.device)
    return x, torch.randint(self.num_classes, shape, device=self.device)

  def server(self) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[self.model](self.num_classes).to(self.device)


def make_round(case: Clients) -> Callable[[], None]:
  """Return a function that trains every client and averages the models."""
  server = case.server()
  x, y = case.images(case.clients, case.steps, case.batch)

  def run():
    uploads = []
    for client in range(case.clients):
      net = copy.deepcopy(server)
      train(net, x[client], y[client], learning_rate=0.1)
      uploads.append(net.state_dict())
    for name in uploads[0]:
      torch.stack([upload[name] for upload in uploads]).mean(0)
    wait(case.device)

  return run


def make_evaluation(case: Clients) -> Callable[[], list[float]]:
  """Return a function that fine-tunes a copy for every client and tests it."""
  server = case.server()
  x, y = case.images(case.clients, case.steps, case.batch)
  test_x, test_y = case.images(case.clients, case.tests)

  def run():
    correct = []
    for client in range(case.clients):
      net = copy.deepcopy(server)
      train(net, x[client], y[client], learning_rate=1e-3, epochs=case.epochs)
      correct.append(test(net, test_x[client], test_y[client]))
    return [hits.item() / case.tests for hits in correct]  # waits

  return run


def train(net, x, y, *, learning_rate, epochs=1):
  """Train on the batches of one client, x [steps, B, 3, H, W]."""
  sgd = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
  net.train()
  for _ in range(epochs):
    for images, labels in zip(x, y, strict=True):
      sgd.zero_grad()
      nn.functional.cross_entropy(net(images), labels).backward()
      sgd.step()


@torch.inference_mode()
def test(net, x, y):
  """Return the number of correctly classified images of [N, 3, H, W]."""
  net.eval()
  batches = zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True)
  return sum(
    (net(images).argmax(1) == labels).sum() for images, labels in batches
  )


def wait(device):
  if device == 'cuda':
    torch.cuda.synchronize()
