"""Personalised federated learning: a whole round is one compiled function.

The names below are what a notebook needs; everything else is one import away.
"""

from fedjax_pfl.algorithm import Algorithm, Stage, available, load
from fedjax_pfl.cohorts import cohort_size, sample_cohort, sample_cohorts
from fedjax_pfl.data import (
  from_arrays,
  load_source,
  make_transforms,
  partition,
  stack_clients,
)
from fedjax_pfl.engine import begin, init_states, make_round, make_rounds
from fedjax_pfl.errors import BadInput
from fedjax_pfl.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.local import Batching, Training, fit, step_schedule, trainable
from fedjax_pfl.modelfile import load_model, save_model
from fedjax_pfl.models.task import make_task, task_from_module
from fedjax_pfl.personalize import Personalization
from fedjax_pfl.report.summary import summarise
from fedjax_pfl.types import Batch, ClientData, Scores, Task

__all__ = [
  'Algorithm',
  'BadInput',
  'Batch',
  'Batching',
  'ClientData',
  'Personalization',
  'Scores',
  'Stage',
  'Task',
  'Training',
  'available',
  'begin',
  'cohort_size',
  'evaluate_clients',
  'fit',
  'from_arrays',
  'init_states',
  'load',
  'load_model',
  'load_source',
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
  'trainable',
]
