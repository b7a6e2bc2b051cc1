"""The models that a run leaves behind, picked while clients are evaluated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Params
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.experiment import Experiment


class Models:
  """<view>_client<id>.npz for the clients of `save_clients`, and global.npz.

  The latter is the view 'initial', where it is the same for all clients: else
  a method has no global model.
  """

  def __init__(self, experiment: Experiment, run: Run):
    self.experiment = experiment
    self.run = run
    self.picked: dict[str, tuple[Params, dict[str, Any]]] = {}
    self.shared: Params | None = None  # 'initial' of client 0
    self.is_shared = False

  def keep(self, ids: np.ndarray, models: dict[str, Params]) -> None:
    """Take what is to be saved of the models of these clients."""
    chosen = self.experiment.settings.evaluation.save_clients
    for view, stacked in models.items():
      for place, client in enumerate(ids.tolist()):
        if client in chosen:
          about = {'view': view, 'client': client}
          model = trees.gather(stacked, place)
          self.picked[f'{view}_client{client}'] = model, about
    if 'initial' in models:
      self._compare(models['initial'])

  def _compare(self, stacked: Params) -> None:
    """See whether these clients, too, have the model of client 0."""
    if self.shared is None:
      self.shared, self.is_shared = trees.gather(stacked, 0), True
    same = jax.tree.map(
      lambda one, rows: bool(jnp.all(rows == one)), self.shared, stacked
    )
    self.is_shared = self.is_shared and all(jax.tree.leaves(same))

  def save(self) -> None:
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
      self.picked = {
        name: (params, about)
        for name, (params, about) in self.picked.items()
        if about['view'] != 'initial'
      }
      self.picked['global'] = self.shared, {'view': 'initial'}
    for name, (params, about) in self.picked.items():
      save_model(self.run.model_path(name), params, {**about_all, **about})
