"""The networks of the PyTorch side of bench.py: the usual way to write them.

NCHW, statistics of the batch, PyTorch's own initialisation. Needs PyTorch.
"""

import torch
from torch import nn


def norm(width):
  return nn.BatchNorm2d(width, track_running_stats=False)


def conv3(inputs, outputs, stride=1, groups=1, bias=False):
  return nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=bias)


def conv1(inputs, outputs, stride=1):
  return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


def pooled(inputs, outputs, size):
  """Return a convolution without padding, and half of its pixels."""
  return [nn.Conv2d(inputs, outputs, size), nn.ReLU(), nn.MaxPool2d(2)]


def dense(*widths):
  """Return linear layers of these widths on the flat image, and ReLUs."""
  parts = [nn.Flatten()]
  for at, inputs in enumerate(widths[:-1]):
    parts += [nn.ReLU()] * (at > 0)
    parts.append(nn.Linear(inputs, widths[at + 1]))
  return parts


def convnet4(num_classes):
  parts, width = [], 3
  for _ in range(4):
    parts += [conv3(width, 64, bias=True), norm(64), nn.ReLU(), nn.MaxPool2d(2)]
    width = 64
  return nn.Sequential(*parts, *dense(256, num_classes))


def mobilenet(num_classes):
  widths = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
  strides = (1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1)
  parts, width = [conv3(3, 32), norm(32), nn.ReLU()], 32
  for outputs, stride in zip(widths, strides, strict=True):
    parts += [conv3(width, width, stride, width), norm(width), nn.ReLU()]
    parts += [conv1(width, outputs), norm(outputs), nn.ReLU()]
    width = outputs
  return nn.Sequential(*parts, nn.AvgPool2d(2), *dense(1024, num_classes))


class Residual(nn.Module):
  """A block of a ResNet: layers, and the image beside them."""

  def __init__(self, inputs, outputs, stride, *body):
    super().__init__()
    self.body = nn.Sequential(*body, norm(outputs))
    self.shortcut = nn.Identity()
    if stride != 1 or inputs != outputs:
      project = conv1(inputs, outputs, stride)
      self.shortcut = nn.Sequential(project, norm(outputs))

  def forward(self, x):
    return torch.relu(self.body(x) + self.shortcut(x))


def basic(inputs, width, stride):
  parts = [conv3(inputs, width, stride), norm(width), nn.ReLU()]
  return Residual(inputs, width, stride, *parts, conv3(width, width))


def bottleneck(inputs, width, stride):
  parts = [conv1(inputs, width), norm(width), nn.ReLU()]
  parts += [conv3(width, width, stride), norm(width), nn.ReLU()]
  wide = conv1(width, 4 * width)
  return Residual(inputs, 4 * width, stride, *parts, wide)


def resnet(block, blocks, growth, num_classes):
  parts, width = [conv3(3, 64), norm(64), nn.ReLU()], 64
  for stage, number in enumerate(blocks):
    for block_number in range(number):
      stride = 2 if stage and block_number == 0 else 1
      parts.append(block(width, 64 * 2**stage, stride))
      width = growth * 64 * 2**stage
  return nn.Sequential(*parts, nn.AvgPool2d(4), *dense(width, num_classes))


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


def pfl_cnn(num_classes):
  parts = [nn.Conv2d(3, 32, 3), nn.ReLU(), *pooled(32, 64, 3)]
  parts += [nn.Dropout(0.25), nn.Flatten()]
  parts += [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5)]
  return nn.Sequential(*parts, nn.Linear(128, num_classes))


MODELS = {
  **{make.__name__: make for make in (convnet4, mobilenet, pfl_cnn, vgg9)},
  'fedavg_cnn': lambda num_classes: nn.Sequential(
    *pooled(3, 32, 5), *pooled(32, 64, 5), *dense(1600, 512, num_classes)
  ),
  'resnet18': lambda number: resnet(basic, (2, 2, 2, 2), 1, number),
  'resnet50': lambda number: resnet(bottleneck, (3, 4, 6, 3), 4, number),
  'simple_cnn': lambda num_classes: nn.Sequential(
    *pooled(3, 6, 5), *pooled(6, 16, 5), *dense(400, 120, 84, num_classes)
  ),
  'superfed_cnn': lambda number: nn.Sequential(
    *(*pooled(3, 32, 5), *pooled(32, 64, 5), *pooled(64, 32, 3)),
    *dense(32, 512, number),
  ),
}
