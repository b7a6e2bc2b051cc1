"""Images of another size, made once when they are loaded."""

from concurrent import futures

import numpy as np

from fedjax_pfl.data.images import Images, Shape, Source, make_source


def scale_shape(shape: Shape, side: int) -> Shape:
  """Return the shape of `scale_images`; side 0 changes nothing."""
  height, width, channels = shape.image_shape
  square = (side or height, side or width, channels)
  return shape._replace(image_shape=square)


def scale_images(source: Source, side: int) -> Source:
  """Return the images scaled to side x side; side 0 changes nothing.

  PIL's bilinear filter, which reads as many pixels as one is made of; the
  results are bytes again. Tiny-ImageNet takes some 10 seconds.
  """
  if not side or source.train.x.shape[1:3] == (side, side):
    return source
  train, test = (
    Images(_scale(split.x, side), split.y)
    for split in (source.train, source.test)
  )
  return make_source(source.name, train, test, source.num_classes, source.note)


def _scale(x: np.ndarray, side: int) -> np.ndarray:
  from PIL import Image

  scaled = np.empty((len(x), side, side, x.shape[-1]), np.uint8)

  def fill(start: int) -> None:
    for i in range(start, min(start + 1000, len(x))):
      grey = x.shape[-1] == 1
      image = Image.fromarray(x[i, :, :, 0] if grey else x[i])
      image = image.resize((side, side), Image.Resampling.BILINEAR)
      scaled[i] = np.asarray(image).reshape(side, side, -1)

  with futures.ThreadPoolExecutor() as pool:  # PIL frees the interpreter lock
    list(pool.map(fill, range(0, len(x), 1000)))
  return scaled
