"""Label counts of a config's clients, for the partition figure."""

from collections.abc import Callable, Mapping
from typing import Any

from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.report.partition_figure import Part
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data


def partition_counts(
  settings: Settings, label: str, log: Callable[[str], None]
) -> Part:
  """Return the label counts of the clients; the data are those of a run."""
  dataset, train, test, *_ = build_data(settings, log)
  counts = (
    label_counts_of_clients(data, dataset.num_classes) for data in (train, test)
  )
  return Part(label, *counts)


def label_of(settings: Settings, changes: Mapping[str, Any]) -> str:
  """Return 'dirichlet, dirichlet_beta=0.5' for a config with these changes."""
  words = [f'{field}={value}' for field, value in changes.items()]
  if not {'partition', settings.data.partition} & {*changes}:
    words.insert(0, settings.data.partition)
  return ', '.join(words)
