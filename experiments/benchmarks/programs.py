"""The compiled programs of a case: a round, or an evaluation."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from experiments.benchmarks.cases import Case
from experiments.benchmarks.plain_models import PLAIN
from experiments.benchmarks.timing import Run
from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, ClientData, Task
from fedjax_pfl.data.client_data import stack_clients
from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.images import Synthetic
from fedjax_pfl.data.transforms import make_transforms
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.federated.chunking import chunk_size, evaluation_chunk
from fedjax_pfl.federated.rounds import begin, make_round
from fedjax_pfl.federated.sharding import make_mesh
from fedjax_pfl.models import registry
from fedjax_pfl.models.module_task import task_from_module

VIEW = 'finetuned'


class Program(NamedTuple):
  """A compiled program, with its arguments."""

  run: Run
  memory: int  # bytes of arguments, results and temporaries


def make_task(case: Case) -> Task:
  """Return the task, with crop, flip and normalisation of CIFAR.

  Plain modules are not augmented, as in the benchmarks that they are from.
  """
  augment, normalise = make_transforms('cifar10', case.image_shape)
  make, model = registry.make_task, case.model
  if case.model in PLAIN:
    make, model = task_from_module, PLAIN[model](case.num_classes)
    augment = normalise
  return make(
    model,
    image_shape=case.image_shape,
    num_classes=case.num_classes,
    augment=augment,
    normalise=normalise,
    conv_impl=case.conv_impl,
  )


def make_clients(case: Case, each: int) -> ClientData:
  """Return clients that each hold so many synthetic images of their own."""
  size = max(case.clients * each, case.num_classes)
  spec = Synthetic(
    case.image_shape, case.num_classes, size, test_size=case.num_classes
  )
  rows = np.arange(case.clients * each).reshape(case.clients, each)
  images = load_dataset('synthetic', synthetic=spec).train
  return stack_clients(images, rows)


def make_stage(case: Case, method: str = 'fedavg') -> Stage:
  """Return the first stage of a method, with its own numbers.

  All its fits have the case's momentum.
  """
  module = load(method)
  shared = {'batch_size': case.batch, 'momentum': case.momentum}
  hp = {
    'train': local_training.LocalTraining(epochs=1, **shared),
    'finetune': personalization.Finetuning(epochs=(case.epochs,), **shared),
  }
  stages = module.build(make_task(case), module.HParams(**hp))
  return stages[0]


def program_bytes(program: jax.stages.Compiled) -> int:
  """Return the memory of a program: arguments, results, temporaries."""
  memory, parts = program.memory_analysis(), ('argument', 'output', 'temp')
  return sum(int(getattr(memory, f'{part}_size_in_bytes')) for part in parts)


def make_program(
  case: Case, data: ClientData, cohort: Array, method: str = 'fedavg'
) -> Program:
  """Return one round of a cohort; its run returns what the round does."""
  stage, key = make_stage(case, method), jax.random.key(0)
  state = begin(stage, data, key)
  arguments = (*state, jnp.asarray(cohort), data, key)
  chunk = chunk_size('auto', stage.algorithm, *arguments)
  mesh = make_mesh(case.devices)
  round_fn = make_round(stage.algorithm, clients_per_chunk=chunk, mesh=mesh)
  compiled, arguments = _compile(round_fn, mesh, arguments)
  run = lambda: jax.block_until_ready(compiled(*arguments))
  return Program(run, program_bytes(compiled))


def make_evaluation(case: Case) -> Program:
  """Return the fine-tuning and evaluation of all clients, as in a run."""
  data = make_clients(case, case.steps * case.batch)
  stage, key = make_stage(case), jax.random.key(0)
  mesh = make_mesh(case.devices)
  evaluate = make_evaluate(
    stage.algorithm,
    make_task(case).normalise,
    (VIEW,),
    clients_per_chunk=evaluation_chunk('auto', case.clients),
    mesh=mesh,
  )
  everyone, tests = jnp.arange(case.clients), make_clients(case, case.tests)
  arguments = (*begin(stage, data, key), everyone, data, tests, key)
  compiled, (server, clients, _, *rest) = _compile(evaluate, mesh, arguments)
  evaluated = compiled, (VIEW,), server, clients, *rest
  run = lambda: evaluate_clients(*evaluated, block=case.clients)
  return Program(run, program_bytes(compiled))


@functools.lru_cache(maxsize=2)  # a first pass is of two programs
def make(case: Case, work: str) -> Program:
  """Return the program of a kind of work, of all clients of the case."""
  if work == 'evaluation':
    return make_evaluation(case)
  data = make_clients(case, case.steps * case.batch)
  return make_program(case, data, np.arange(case.clients))


def _compile(function: Callable, mesh, arguments: tuple) -> tuple:
  """Return it compiled, and the arguments on all devices of a mesh."""
  if mesh is not None:
    arguments = jax.device_put(arguments, NamedSharding(mesh, Spec()))
  return jax.jit(function).lower(*arguments).compile(), arguments
