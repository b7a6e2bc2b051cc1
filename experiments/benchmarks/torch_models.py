"""The networks of the PyTorch side of bench.py: the usual way to write them.

NCHW, statistics of the batch, PyTorch's own initialisation. Needs PyTorch.
"""

import torch
from torch import nn


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


class Residual(nn.Module):
  """A block of a ResNet: layers, and the image beside them."""

  def __init__(self, inputs, outputs, stride, *body):
    super().__init__()
    self.body = nn.Sequential(*body, norm(outputs))
    self.shortcut = nn.Identity()
    if stride != 1 or inputs != outputs:
      project = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
      self.shortcut = nn.Sequential(project, norm(outputs))

  def forward(self, x):
    return torch.relu(self.body(x) + self.shortcut(x))


def basic(inputs, width, stride):
  first = conv3(inputs, width, stride), norm(width), nn.ReLU()
  return Residual(inputs, width, stride, *first, conv3(width, width))


def bottleneck(inputs, width, stride):
  narrow = nn.Conv2d(inputs, width, 1, bias=False), norm(width), nn.ReLU()
  seen = conv3(width, width, stride), norm(width), nn.ReLU()
  wide = nn.Conv2d(width, 4 * width, 1, bias=False)
  return Residual(inputs, 4 * width, stride, *narrow, *seen, wide)


def resnet(block, blocks, growth, num_classes):
  parts, width = [conv3(3, 64), norm(64), nn.ReLU()], 64
  for stage, number in enumerate(blocks):
    for place in range(number):
      stride = 2 if stage and place == 0 else 1
      parts += [block(width, 64 * 2**stage, stride)]
      width = growth * 64 * 2**stage
  parts += [nn.AvgPool2d(4), nn.Flatten(), nn.Linear(width, num_classes)]
  return nn.Sequential(*parts)


def resnet18(num_classes):
  return resnet(basic, (2, 2, 2, 2), 1, num_classes)


def resnet50(num_classes):
  return resnet(bottleneck, (3, 4, 6, 3), 4, num_classes)


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


def fedavg_cnn(num_classes):
  parts = [nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2)]
  parts += [nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
  parts += [nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, num_classes)]
  return nn.Sequential(*parts)


def pfl_cnn(num_classes):
  parts = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
  parts += [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
  parts += [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5)]
  return nn.Sequential(*parts, nn.Linear(128, num_classes))


MODELS = {
  'convnet4': convnet4,
  'mobilenet': mobilenet,
  'fedavg_cnn': fedavg_cnn,
  'pfl_cnn': pfl_cnn,
  'resnet18': resnet18,
  'resnet50': resnet50,
  'simple_cnn': simple_cnn,
  'superfed_cnn': superfed_cnn,
  'vgg9': vgg9,
}
