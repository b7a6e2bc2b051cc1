"""Personalised federated learning in JAX: a round is one compiled function.

`import fedjax_pfl as pfl` gives the names below. A method of your own may also
import what those in algorithms/ do (docs/howto/own_method.md).

  Experiments   build_experiment, load_code, train, load_results, predict
  Methods       algorithm, available, Algorithm, Stage
  Models        make_task, task_from_module, with_lora, replace_layers, Task,
                save_model, load_model
  Data          load_dataset, from_arrays, partition, stack_clients,
                make_transforms, write_clients, ClientData, Batch
  One client    LocalTraining, Finetuning, Batching, fit, freeze_except,
                step_schedule
  Rounds        begin, init_states, make_round, make_rounds, Sampler,
                cohort_size, sample_cohort, sample_cohorts
  Evaluation    make_evaluate, evaluate_clients, summarise, Scores
  Errors        BadInput: every error that a user can correct

>>> config = {'dataset': 'digits', 'model': 'convnet3'}
>>> experiment = pfl.build_experiment(config)
>>> experiment.settings.algorithm, experiment.cohort_size
('fedavg', 10)
"""

import importlib as _importlib

from fedjax_pfl.algorithms import algorithm, available
from fedjax_pfl.client.local_training import Batching, LocalTraining, fit
from fedjax_pfl.client.optimisers import freeze_except, step_schedule
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core import machine as _machine
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Batch, ClientData, Scores, Task
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.data.client_data import from_arrays, stack_clients
from fedjax_pfl.data.clients_folder import write_clients
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.partition import partition
from fedjax_pfl.data.transforms import make_transforms
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.federated.rounds import (
  begin,
  init_states,
  make_round,
  make_rounds,
)
from fedjax_pfl.federated.sampling import (
  Sampler,
  cohort_size,
  sample_cohort,
  sample_cohorts,
)
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.registry import make_task
from fedjax_pfl.models.replace_layers import replace_layers
from fedjax_pfl.runs.model_file import load_model, save_model
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train

__version__ = '0.2.0'

_machine.prepare()  # before jax lists its devices


_LATE = {
  'predict': 'fedjax_pfl.analysis.predict',
  'load_results': 'fedjax_pfl.results.runs.frame',
  'with_lora': 'fedjax_pfl.models.lora',
}


def __getattr__(name):
  """Import what few runs need when it is asked for."""
  if name not in _LATE:
    raise AttributeError(f'fedjax_pfl has no {name}')
  return getattr(_importlib.import_module(_LATE[name]), name)


__all__ = ['Algorithm', 'BadInput', 'Batch', 'Batching', 'ClientData']
__all__ += ['Finetuning', 'LocalTraining', 'Sampler', 'Scores', 'Stage', 'Task']
__all__ += ['algorithm', 'available', 'begin', 'build_experiment']
__all__ += ['cohort_size', 'evaluate_clients', 'fit', 'freeze_except']
__all__ += ['from_arrays', 'init_states', 'load_code', 'load_dataset']
__all__ += ['load_model', 'load_results', 'make_evaluate', 'make_round']
__all__ += ['make_rounds', 'make_task', 'make_transforms', 'partition']
__all__ += [
  'predict',
  'replace_layers',
  'sample_cohort',
  'sample_cohorts',
  'save_model',
]
__all__ += ['stack_clients', 'step_schedule', 'summarise', 'task_from_module']
__all__ += ['train', 'with_lora', 'write_clients']
