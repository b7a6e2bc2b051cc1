"""Fingerprints of the data of many configs, on few image sets."""

from collections.abc import Callable

from fedjax_pfl.settings import Settings
from fedjax_pfl.training.experiment_data import divide, identify, load_images

DataOf = Callable[[Settings], str]  # settings -> fingerprint of the data


def make_data_of(log: Callable[[str], None]) -> DataOf:
  """Return settings -> the fingerprint of the data that a run would have.

  An image set is read once, and each partition of it drawn once.
  """
  datasets, fingerprints = {}, {}

  def data_of(settings: Settings) -> str:
    data, quick = settings.data, settings.system.quick
    images = (
      *(data.dataset, data.data_dir, data.max_train_examples),
      *(data.preprocessing, quick),
    )
    division = (data, quick, settings.seed)
    if division not in fingerprints:
      if images not in datasets:
        datasets[images] = load_images(settings, log)
      dataset = datasets[images]
      fingerprints[division] = identify(dataset, divide(settings, dataset))
    return fingerprints[division]

  return data_of
