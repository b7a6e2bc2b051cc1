"""Resize images, once, when they are loaded."""

from concurrent import futures

import numpy as np

from fedjax_pfl.data.images import Dataset, Images, Shape, make_dataset


def scale_shape(shape: Shape, side: int) -> Shape:
  """Return the shape of `scale_images`; side 0 changes nothing."""
  if not side:
    return shape
  *_, channels = shape.image_shape
  return shape._replace(image_shape=(side, side, channels))


def scale_images(dataset: Dataset, side: int) -> Dataset:
  """Return the images scaled to side x side; side 0 changes nothing.

  With PIL's bilinear filter, which averages when it shrinks; the results are
  uint8. Tiny-ImageNet takes some 10 seconds.
  """
  if not side or dataset.train.x.shape[1:3] == (side, side):
    return dataset
  train, test = (
    Images(_scale(split.x, side), split.y)
    for split in (dataset.train, dataset.test)
  )
  scaled = make_dataset(
    dataset.name, train, test, dataset.num_classes, dataset.note
  )
  return scaled._replace(clients=dataset.clients)


def _scale(x: np.ndarray, side: int) -> np.ndarray:
  from PIL import Image

  def scale(pixels: np.ndarray) -> np.ndarray:
    image = Image.fromarray(pixels[..., 0] if x.shape[-1] == 1 else pixels)
    image = image.resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(side, side, -1)

  with futures.ThreadPoolExecutor() as pool:  # PIL frees the interpreter lock
    return np.stack(list(pool.map(scale, x)))
