"""Federated LoRA of a vision transformer with 1.3 billion parameters.

  python experiments/compile_for.py --device=h100:8 \\
      --config=experiments/accelerators/large_vit.py

26 blocks of width 2,048 with 16 heads read images of 224 pixels as 196 patches;
adapters of rank 16 and the head are trained. Each model is on 8 devices.
"""

from configs import common
from fedjax_pfl.models.transformer import ViT

SIZE = dict(patch=16, width=2048, blocks=26, heads=16, class_token=True)


def large_vit(num_classes):
  return ViT(num_classes, **SIZE)


def get_config(arg=''):
  return common.base(
    arg,
    dataset='cifar100',
    model=f'{__file__}:large_vit',
    model_image_size=224,
    lora_rank=16,
    algorithm='partial',
    hp={'shared': '*/lora_*,head/*', 'personal': ()},
    batch_size=16,
    model_devices=8,
  )
