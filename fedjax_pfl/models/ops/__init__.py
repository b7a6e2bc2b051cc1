"""Layers that are faster than XLA's, and which shape goes to which.

models/replace_layers.py traces any function and puts these layers in its
place, equation by equation (replacements.py). A layer is computed when it is
read, so that a convolution, its BatchNorm, ReLU and pooling are one function
(fuse.py). The setting `conv_impl` chooses:

  gemm    matrix products, for a CPU, where XLA's convolutions under a client
          axis are 40 times slower, and for five models on a GPU
  fused   XLA's convolutions with few passes over memory around them, for
          accelerators; a TPU has XLA's separable ones, too
  lax     XLA's convolutions, and max-pooling by comparisons

On a CPU, images [B, H, W, C] unless C is named first:

  3x3, 5x5 of 16 channels and more,   winograd.py: 36 products for 6x6 pixels,
    64 pixels or 32 whole tiles         F(4x4, 3x3) and F(2x2, 5x5)
  the same, ReLU, max-pooling         winograd.py, in a block
  fewer channels, ReLU, max-pooling   window_conv.py: a window is one product
  3x3 without tiles, BatchNorm,       patches_chwb.py, then pooled_norm.py, on
    ReLU, 2x2 max-pooling               [C, H, W, B]
  BatchNorm, ReLU, depthwise,         norm_depthwise.py: blocks of channels, on
    BatchNorm, ReLU                     [C, H, W, B]
  all other convolutions              fuse.py: patches of a block
  all other BatchNorms                batch_norm.py: with ReLU, skip or pooling
  a dense kernel of a MiB and more    dense.py: in the optimiser's pass
  depthwise, max-pooling              separable.py, pool.py

On an accelerator there are no blocks and no [C, H, W, B], separable.py has
pointwise and depthwise convolutions, batch_norm.py and pool.py are the same; on
a GPU grouped.py has the others' kernel gradients. models/layers.py has the
layers of our models by their definition. blocks.py keeps arrays in cache,
passes.py keeps passes apart. What each is worth: docs/dev/optimizations.md,
"What each pass is worth".
"""
