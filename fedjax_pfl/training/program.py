"""The compiled functions of runs that differ in seeds, and in traced numbers.

A seed is an argument of every program. So is a number that changes no shape
and no decision in Python (a learning rate, hp.mu; many_runs.py): the method is
built inside the traced function, with the argument for the number.

A run evaluates the models of clients on each client's own test examples, and
the global model on the whole test set, in stored order and in batches of
TEST_BATCH. A method whose server holds a part of the model only has none.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import FINITE, Algorithm, Client, Server, Stage
from fedjax_pfl.core.target import compiler_options, target
from fedjax_pfl.core.types import ClientData, Key, Scores
from fedjax_pfl.data.client_data import client_of, stack_clients
from fedjax_pfl.data.dealing import UNSEEN
from fedjax_pfl.data.held_out import generator
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.metrics import TEST_BATCH
from fedjax_pfl.evaluation.own_metrics import score_fn_of, with_metrics
from fedjax_pfl.evaluation.summary import other_measures, own_measures
from fedjax_pfl.federated import chunking, communication
from fedjax_pfl.federated.rounds import compile_rounds
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.validate import flat_settings, with_numbers
from fedjax_pfl.training.build import Experiment

STREAM = 1001  # of the seed, who is evaluated
CPU_BLOCK = 10  # clients evaluated between two updates of the progress bar
Numbers = dict[str, Any]  # {'learning_rate': 0.1, 'hp.mu': 0.01}
OnModels = Callable[[np.ndarray, dict[str, Any]], None]
States = tuple[Server, Client]


class Program:
  """The rounds and evaluations of an experiment, compiled when first called.

  `names` are the traced numbers. Runs that share the program have data of one
  shape, and settings that differ in the seed and in these numbers alone.
  """

  def __init__(self, experiment: Experiment, names: Sequence[str] = ()):
    self.experiment, self.names = experiment, tuple(names)
    self.placement = experiment.placement
    self._rounds: dict[int, Callable] = {}
    # Of each stage, once its rounds are traced.
    self.message_bytes: dict[int, communication.Communication] = {}
    self.evaluation = cache(self._evaluation)
    self.global_evaluation = cache(self._global_evaluation)

  def numbers_of(self, settings: Settings) -> Numbers:
    """Return the arguments that stand for these settings."""
    fields = flat_settings(settings) if self.names else {}
    return {name: float(fields[name]) for name in self.names}

  def stages(self, numbers: Mapping[str, Any]) -> tuple[Stage, ...]:
    """Return the stages of the method with these numbers, traced or not."""
    if not numbers:
      return self.experiment.stages
    settings = with_numbers(self.experiment.settings, numbers)
    return self.experiment.stages_of(settings)

  def rounds(self, stage_number: int, server: Server) -> Callable:
    """Return the compiled rounds of this stage.

    (numbers, server, clients, cohorts [T, C], data, key) -> (server, clients,
    metrics {name: [T, C]}). Of `server` only the shapes matter.
    """
    if stage_number not in self._rounds:
      experiment, stage = self.experiment, self.experiment.stages[stage_number]
      progress.say(f'compiling the rounds of {stage.name}')
      is_debug = experiment.settings.system.debug
      initial = jax.eval_shape(stage.initial_broadcast, server)
      self._rounds[stage_number] = compile_rounds(
        lambda numbers: self.stages(numbers)[stage_number].algorithm,
        experiment.clients_per_chunk,
        self.placement,
        stage.name if is_debug else '',
        watch=partial(self._watch, stage_number, initial),
        limit=None if is_debug else limit_chunk(experiment, stage),
        log=progress.log,
        in_place=True,
      )
    return self._rounds[stage_number]

  def _watch(self, stage_number, initial, before, down, after, up, metrics):
    """Return the numbers of a client, and whether it is finite.

    Counts bytes while rounds are traced: to trace a deep model only for these
    takes a second. A run reads no arrays: the loss of every step stays with its
    client.
    """
    sent = communication.Messages(before, up, down, initial)
    self.message_bytes[stage_number] = communication.sizes_of(sent)
    numbers = {name: x for name, x in metrics.items() if not jnp.ndim(x)}
    if FINITE not in numbers:  # no client can fail: around/failures.py
      numbers[FINITE] = trees.all_finite((metrics['loss'], after, up))
    return numbers

  def _evaluation(
    self,
    stage_number: int,
    views: tuple[str, ...],
    *,
    scoring: str,
    keep_models: bool = False,
    edit: Callable[[Stage], Stage] = lambda stage: stage,
  ) -> Callable:
    """Return the evaluation of a block of clients, of the stage as edited.

    It is given the server with the numbers: ((server, numbers), clients, ..).
    """
    progress.say(f'compiling the evaluation of {", ".join(views)}')

    def read(shared):
      server, numbers = shared
      return edit(self.stages(numbers)[stage_number]).algorithm, server

    chunk = self.experiment.clients_per_chunk
    evaluation = make_evaluation(
      self.experiment,
      read,
      views,
      scoring,
      keep_models=keep_models,
      clients_per_chunk=chunking.evaluation_chunk(chunk, self.block),
      mesh=self.placement.mesh,
    )
    return self.placement.of_evaluation(evaluation)

  @property
  def block(self) -> int:
    """Return how many clients one call evaluates."""
    size = block_size(self.experiment.cohort_size)
    return self.placement.round_up(size)

  def _global_evaluation(self, stage_number: int) -> Callable:
    """Return (numbers, server, test) -> Scores of the server's one model."""
    progress.say('compiling the evaluation of the global model')
    task, metrics = self.experiment.task, self.experiment.metrics
    score_fn = with_metrics(score_fn_of(task), metrics)

    def evaluate(numbers, server, test):
      algorithm = self.stages(numbers)[stage_number].algorithm
      model = algorithm.global_model(server)
      return score_fn(
        algorithm.predict, model, test, task.normalise, TEST_BATCH
      )

    return jax.jit(evaluate, compiler_options=compiler_options())


def block_size(cohort_size: int) -> int:
  """Return how many clients are evaluated in one call, on one device."""
  # As many as a round holds: that is known to fit an accelerator.
  return CPU_BLOCK if target() == 'cpu' else max(CPU_BLOCK, cohort_size)


def make_evaluation(
  experiment: Experiment,
  algorithm: Algorithm | Callable,
  views: Sequence[str],
  scoring: str,
  **parts: Any,
) -> Callable:
  """Return the evaluation of clients as a run has it, not yet compiled."""
  # Per-batch numbers are those of the public code: training's batches.
  batch_size = experiment.settings.train.batch_size
  # Few clients fill a batch of 128 texts, each of which has many labels.
  if scoring == 'exact' and experiment.task.num_labels == 1:
    batch_size = TEST_BATCH
  return make_evaluate(
    algorithm,
    experiment.task.normalise,
    views,
    batch_size=batch_size,
    score_fn=score_fn_of(experiment.task, scoring),
    metrics=experiment.metrics,
    **parts,
  )


def limit_chunk(experiment: Experiment, stage: Stage) -> int:
  """Return the largest chunk to choose; log its padding overhead, if any."""
  settings, counts = experiment.settings, np.asarray(experiment.train.count)
  size = experiment.sampler_of(stage).size
  batch_size = settings.train.batch_size
  chunk = experiment.clients_per_chunk
  limit = chunking.chunk_limit(chunk, counts, size, batch_size)
  if limit > 1:
    share = chunking.expected_overhead(counts, size, limit, batch_size)
    progress.log(
      f'{"At most " * (chunk == "auto")}{limit} clients at a time: padding '
      f'overhead {100 * share:.1f} % of their steps.'
    )
  return limit


class Evaluator:
  """The evaluations of a run, by the number of a stage, with its own `key`."""

  def __init__(
    self, experiment: Experiment, key: Key, program: Program | None = None
  ):
    self.experiment, self.key = experiment, key
    self._program = program or Program(experiment)
    self.numbers = self._program.numbers_of(experiment.settings)
    self._tests: ClientData | None = None  # the whole test set

  def validation(
    self, stage_number: int, states: States, views: Sequence[str]
  ) -> dict[str, Scores]:
    """Return {view: Scores [K]} on the validation examples."""
    data = self.experiment.train, self.experiment.data.splits['validation']
    return self.clients(
      stage_number, states, views, data, scoring='exact', label='validation'
    )

  def unseen(
    self, stage_number: int, server: Server, views: Sequence[str]
  ) -> dict[str, Scores]:
    """Return the same for the clients who come after training; {} without any.

    The key of evaluation is fold_in(key, K), K the clients that took part.
    """
    experiment = self.experiment
    if f'{UNSEEN}test' not in experiment.data.splits:
      return {}
    from fedjax_pfl.evaluation.new_clients import with_new_clients

    num_seen = experiment.settings.data.num_seen_clients
    key = jax.random.fold_in(self.key, num_seen)
    return self.clients(
      stage_number,
      (server, ()),
      views,
      experiment.unseen_eval_data,
      key=key,
      label='evaluation of unseen clients',
      edit=with_new_clients,
    )

  def clients(
    self,
    stage_number: int,
    states: States,
    views: Sequence[str],
    data: tuple[ClientData, ClientData] | None = None,
    *,
    scoring: str | None = None,
    on_models: OnModels | None = None,
    label: str = 'evaluation',
    key: Key | None = None,
    **edit: Callable[[Stage], Stage],
  ) -> dict[str, Scores]:
    """Return {view: Scores [K]}; blocks of models are handed to `on_models`."""
    if not views:
      return {}
    server, clients = states
    data = data or self.experiment.eval_data
    scoring = scoring or self.experiment.settings.evaluation.scoring
    ids = self.evaluated(data[0].count.shape[0])
    evaluate_fn = self._program.evaluation(
      stage_number,
      tuple(views),
      scoring=scoring,
      keep_models=on_models is not None,
      **edit,
    )

    def evaluate(server, clients, block, *args):
      for examples in data:
        self.experiment.read_ahead(examples, np.asarray(block))
      return evaluate_fn(server, clients, block, *args)

    shown = {'unit': f'{label}, client', 'is_short': True}
    with progress.progress(label, len(ids), **shown) as bar:
      return evaluate_clients(
        evaluate,
        views,
        (server, self.numbers),
        clients,
        *data,
        self.key if key is None else key,
        block=self._program.block,
        ids=ids,
        on_progress=bar.update,
        on_models=on_models,
      )

  def evaluated(self, num_clients: int) -> np.ndarray:
    """Return the ids of those who are evaluated, `eval_clients` drawn ones."""
    settings = self.experiment.settings
    number = settings.evaluation.eval_clients or num_clients
    if number >= num_clients:
      return np.arange(num_clients)
    drawn = generator(settings.seed, STREAM).permutation(num_clients)[:number]
    saved = np.array(settings.evaluation.save_clients, int)
    return np.union1d(drawn, saved[saved < num_clients])

  def global_model(self, stage_number: int, server: Server) -> dict[str, Any]:
    """Return measures of the server's model; {} if none is there, or asked."""
    experiment = self.experiment
    algorithm = experiment.stages[stage_number].algorithm
    asked = experiment.settings.evaluation.eval_global_model
    if not asked or not algorithm.global_model:
      return {}
    if self._tests is None:  # on the device, at the first evaluation
      self._tests = as_one_client(experiment.dataset.test)
    evaluate_fn = self._program.global_evaluation(stage_number)
    scores = evaluate_fn(self.numbers, server, self._tests)
    count = int(scores.count)
    return {
      experiment.measure.name: 100 * float(scores.correct) / max(count, 1),
      **{name: float(value) for name, value in other_measures(scores).items()},
      **own_measures(scores, np.True_),
      'count': count,
    }


def as_one_client(images: Images) -> ClientData:
  """Return all images as those of one client: index [N], count []."""
  return client_of(stack_clients(images, [np.arange(len(images.y))]), 0)
