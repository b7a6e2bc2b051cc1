"""Personalised federated learning: a whole round is one compiled function.

The names below are what a notebook needs; everything else is one import away.
"""

from fedjax_pfl.algorithms import available
from fedjax_pfl.algorithms import load as algorithm
from fedjax_pfl.client.local_training import Batching, LocalTraining, fit
from fedjax_pfl.client.optimisers import freeze_except, step_schedule
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Batch, ClientData, Scores, Task
from fedjax_pfl.data import (
  from_arrays,
  load_dataset,
  make_transforms,
  partition,
  stack_clients,
)
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.federated.cohort import (
  cohort_size,
  sample_cohort,
  sample_cohorts,
)
from fedjax_pfl.federated.rounds import (
  begin,
  init_states,
  make_round,
  make_rounds,
)
from fedjax_pfl.models.task import make_task, task_from_module
from fedjax_pfl.report import load_results
from fedjax_pfl.runs.model_file import load_model, save_model

__all__ = [
  'Algorithm',
  'BadInput',
  'Batch',
  'Batching',
  'ClientData',
  'Finetuning',
  'LocalTraining',
  'Scores',
  'Stage',
  'Task',
  'algorithm',
  'available',
  'begin',
  'cohort_size',
  'evaluate_clients',
  'fit',
  'freeze_except',
  'from_arrays',
  'init_states',
  'load_dataset',
  'load_model',
  'load_results',
  'make_evaluate',
  'make_round',
  'make_rounds',
  'make_task',
  'make_transforms',
  'partition',
  'sample_cohort',
  'sample_cohorts',
  'save_model',
  'stack_clients',
  'step_schedule',
  'summarise',
  'task_from_module',
]
