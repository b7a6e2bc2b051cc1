"""Cosine between clients' layers while they fine-tune (Figure 12)."""

import numpy as np

from experiments.answers.common import (
  Answer,
  Log,
  Opened,
  Options,
  add_legend,
  make_figure,
)
from fedjax_pfl.analysis.runs import load_global
from fedjax_pfl.analysis.similarity import finetuning_cosines
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report.similarity_plots import plot_layers
from fedjax_pfl.training.seed_run import random_streams

WITH_DATA = True
HEADER = ('run', 'layer', 'epoch', 'cosine')


def ask(runs: list[Opened], options: Options, log: Log) -> Answer:
  """Fine-tune the global model of every run on its clients."""
  del log
  # Each with its own scale: methods differ by a factor of ten.
  figure, axes = make_figure(len(runs), 5.2, 4.2)
  rows = []
  for ax, run in zip(axes, runs, strict=True):
    number = _num_clients(run, options)
    cosines = measure(run, number, options.epochs)
    plot_layers(ax, cosines)
    ax.set_title(f'{run.name}, {number} clients', fontsize=11)
    for layer, values in cosines.items():
      for epoch, value in enumerate(values):
        rows.append([run.label, layer, epoch, f'{value:.8f}'])
  add_legend(figure, axes[0])
  return Answer(figure, HEADER, rows)


def measure(run: Opened, clients: int, epochs: int) -> dict[str, np.ndarray]:
  """Return {layer: [epochs + 1]} of the first so many clients."""
  task = run.experiment.task
  finetune = {**run.settings['finetune'], 'epochs': (epochs,)}
  with progress.progress(
    f'fine-tuning {run.name}', clients, unit='client'
  ) as bar:
    return finetuning_cosines(
      task,
      load_global(task, run.path),
      run.experiment.train,
      np.arange(clients),
      random_streams(run.settings['seed'])['evaluation'],
      Finetuning(**finetune),
      bar.update,
    )


def _num_clients(run: Opened, options: Options) -> int:
  total = run.settings['num_clients']
  number = min(options.clients or total, total)
  if number < 2:
    raise bad_input(
      'clients',
      got=number,
      expected='two clients or more',
      cause='a similarity is one between two of them',
    )
  return number
