"""Weights & Biases: project WANDB_PROJECT, or else 'fedjax_pfl'.

The key, the mode (WANDB_MODE=offline) and all else are those of its own
environment and files: nothing of it is read or stored here. Its files are in
the folder wandb/ of the run.
"""

import os

from fedjax_pfl.runs.trackers import PROJECT, Begin, Numbers, scalars

UPLOAD = 60  # seconds for the last numbers; what is left, `wandb sync` sends


class Run:
  """A run that is new, or is continued by its id."""

  def __init__(self, begin: Begin):
    import wandb

    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT') or PROJECT,
      dir=str(begin.folder),
      id=begin.id,
      name=begin.folder.resolve().name,
      config=dict(begin.config),
      resume='allow',
      reinit='create_new',  # other seeds have runs of their own
      allow_val_change=True,  # a resumable field
      settings=wandb.Settings(
        # It would print over the progress bar, and redirect what we print.
        silent=True,
        console='off',
        finish_timeout=UPLOAD,
        finish_timeout_raises=True,
      ),
    )
    self.id = self._run.id
    folder = os.path.dirname(self._run.dir)
    is_offline = self._run.offline
    self.place = f'{folder}, for wandb sync' if is_offline else self._run.url

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Send the numbers, unless those of this round are there already."""
    del now  # it has a clock of its own
    if step >= self._run.step:  # it would warn of each, and drop it
      self._run.log(scalars(numbers), step=step, commit=True)

  def finish(self, result: Numbers | None) -> None:
    """Send the result, and end the run."""
    if result is not None:
      self._run.summary.update(scalars(result))
    self._run.finish(exit_code=int(result is None))
