"""Export models: chosen while clients are evaluated, saved as a run ends."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Params
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.experiment import Experiment


class ModelExport:
  """<view>_client<id>.npz for the clients of `save_clients`, and global.npz.

  global.npz is the view 'initial' if it is the same for all clients; else the
  method has no global model.
  """

  def __init__(self, experiment: Experiment, run: Run):
    self.experiment = experiment
    self.run = run
    self.chosen: dict[str, tuple[Params, dict[str, Any]]] = {}
    self.shared: Params | None = None  # 'initial' of client 0
    self.is_shared = False

  def add(self, ids: np.ndarray, models: dict[str, Params]) -> None:
    """Add those models of these clients that are to be saved."""
    save_clients = self.experiment.settings.evaluation.save_clients
    for view, stacked in models.items():
      for place, client in enumerate(ids.tolist()):
        if client in save_clients:
          about = {'view': view, 'client': client}
          model = trees.gather(stacked, place)
          self.chosen[f'{view}_client{client}'] = model, about
    if 'initial' in models:
      self._compare(models['initial'])

  def _compare(self, stacked: Params) -> None:
    """Compare the models of these clients with that of client 0."""
    if self.shared is None:
      self.shared, self.is_shared = trees.gather(stacked, 0), True
    same = jax.tree.map(
      lambda leaf, rows: bool(jnp.all(rows == leaf)), self.shared, stacked
    )
    self.is_shared = self.is_shared and all(jax.tree.leaves(same))

  def save(self) -> None:
    """Write the chosen models, and the global model if there is one."""
    settings = self.experiment.settings
    about_all = {
      'model': settings.model.name,
      'algorithm': settings.algorithm,
      'dataset': settings.data.dataset,
      'image_shape': self.experiment.dataset.train.x.shape[1:],
      'num_classes': self.experiment.dataset.num_classes,
      'rounds': self.experiment.rounds,
    }
    if self.is_shared:
      self.chosen = {
        name: (params, about)
        for name, (params, about) in self.chosen.items()
        if about['view'] != 'initial'
      }
      self.chosen['global'] = self.shared, {'view': 'initial'}
    for name, (params, about) in self.chosen.items():
      save_model(self.run.model_path(name), params, {**about_all, **about})
