"""Checkpoints by the names of torchvision and timm, with weights drawn here.

`public_checkpoints.npz` has for each network the names and shapes of its
`state_dict` (what has an axis), and of two images the features and the first
ten logits of PyTorch 2.13.0 with torchvision 0.28.0 (resnet18, resnet50,
torchvision_vit_b16: vit_b_16) and timm 1.0.31 (vit_ti16: vit_tiny_patch16_224,
vit_b16: vit_base_patch16_224), in float32 on a CPU:

  shapes = {n: tuple(t.shape) for n, t in net.state_dict().items() if t.ndim}
  state = {n: torch.tensor(drawn(n, s)) for n, s in shapes.items()}
  net.load_state_dict(state, strict=False)
  x = torch.tensor(images(side).transpose(0, 3, 1, 2))
  net.eval()                    # below, the last layer is net.fc or net.heads
  features = net.forward_head(net.forward_features(x), pre_logits=True)  # timm
  net.fc, fc = torch.nn.Identity(), net.fc; features = net(x)     # torchvision

`vit_ti16_at_96` is that of `create_model('vit_tiny_patch16_224', img_size=96)`
after timm's `checkpoint_filter_fn(state, net)`, which scales the positions.
"""

import functools
import json
import math
import pathlib
import zlib

import numpy as np
from safetensors.numpy import save_file

FILE = pathlib.Path(__file__).with_suffix('.npz')


@functools.cache
def golden(network: str) -> dict[str, np.ndarray]:
  """Return the arrays of a network: shapes, features, logits."""
  with np.load(FILE) as file:
    return {
      name.partition('.')[2]: file[name]
      for name in file.files
      if name.partition('.')[0] == network
    }


def _random(name: str, shape: tuple[int, ...]) -> np.ndarray:
  return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(
    shape, 'f4'
  )


def images(side: int) -> np.ndarray:
  return _random('image', (2, side, side, 3))


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
  """Return the tensor of this name: activations stay of the order of 1."""
  z = _random(name, shape)
  if len(shape) > 1:  # the tokens of a transformer have three axes
    scale = 2 if len(shape) == 3 else math.sqrt(math.prod(shape[1:]))
    return z / np.float32(scale)
  if name.endswith('running_var'):
    return np.exp(np.float32(0.1) * z)
  return z * np.float32(0.1) + np.float32(name.endswith('weight'))


def tensors(network: str) -> dict[str, np.ndarray]:
  shapes = json.loads(str(golden(network)['shapes']))
  return {name: drawn(name, tuple(shape)) for name, shape in shapes.items()}


def write(folder: pathlib.Path, found: dict[str, np.ndarray]) -> str:
  """Return the path of the file with these tensors."""
  path = str(folder / 'public.safetensors')
  save_file(found, path)
  return path
