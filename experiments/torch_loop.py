"""The yardstick of bench.py: a plain sequential PyTorch loop over clients.

The networks as one would write them: NCHW, batch
statistics, SGD with momentum. Needs PyTorch; nothing else imports this file.
"""

import copy

import torch
from torch import nn

NUM_CLASSES = 10


def norm(width):
  return nn.BatchNorm2d(width, track_running_stats=False)


def conv3(inputs, outputs, stride=1, groups=1, bias=False):
  return nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=bias)


def convnet4():
  parts, width = [], 3
  for _ in range(4):
    parts += [conv3(width, 64, bias=True), norm(64), nn.ReLU(), nn.MaxPool2d(2)]
    width = 64
  return nn.Sequential(*parts, nn.Flatten(), nn.Linear(256, NUM_CLASSES))


def mobilenet():
  widths = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
  strides = (1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1)
  parts, width = [conv3(3, 32), norm(32), nn.ReLU()], 32
  for outputs, stride in zip(widths, strides, strict=True):
    parts += [conv3(width, width, stride, width), norm(width), nn.ReLU()]
    parts += [nn.Conv2d(width, outputs, 1, bias=False), norm(outputs)]
    parts += [nn.ReLU()]
    width = outputs
  parts += [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, NUM_CLASSES)]
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


def resnet18():
  parts, width = [conv3(3, 64), norm(64), nn.ReLU()], 64
  for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
    parts += [BasicBlock(width, outputs, stride)]
    parts += [BasicBlock(outputs, outputs, 1)]
    width = outputs
  parts += [nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, NUM_CLASSES)]
  return nn.Sequential(*parts)


def simple_cnn():
  conv = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
  conv += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
  dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
  return nn.Sequential(*conv, *dense, nn.Linear(84, NUM_CLASSES))


def superfed_cnn():
  parts, width = [], 3
  for outputs, size in ((32, 5), (64, 5), (32, 3)):
    parts += [nn.Conv2d(width, outputs, size), nn.ReLU(), nn.MaxPool2d(2)]
    width = outputs
  parts += [nn.Flatten(), nn.Linear(32, 512), nn.ReLU()]
  return nn.Sequential(*parts, nn.Linear(512, NUM_CLASSES))


def vgg9():
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
  return nn.Sequential(*parts, nn.Linear(512, NUM_CLASSES))


MODELS = {
  'convnet4': convnet4,
  'mobilenet': mobilenet,
  'resnet18': resnet18,
  'simple_cnn': simple_cnn,
  'superfed_cnn': superfed_cnn,
  'vgg9': vgg9,
}


def make_round(model: str, num_clients: int, num_steps: int, batch_size: int):
  """Return a function that trains every client and averages the models."""
  torch.manual_seed(0)
  server = MODELS[model]()
  shape = (num_clients, num_steps, batch_size)
  x = torch.randn(*shape, 3, 32, 32)
  y = torch.randint(NUM_CLASSES, shape)

  def train(client):
    net = copy.deepcopy(server)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(num_steps):
      sgd.zero_grad()
      logits = net(x[client, step])
      nn.functional.cross_entropy(logits, y[client, step]).backward()
      sgd.step()
    return net.state_dict()

  def run():
    uploads = [train(client) for client in range(num_clients)]
    return {
      name: torch.stack([upload[name] for upload in uploads]).mean(0)
      for name in uploads[0]
    }

  return run
