"""Export one model of a finished run as a plain file.

Of a client: a view of the method's `personalize`, on the client's own data and
with the random numbers of the run's evaluation. Of the server: `global_model`.
Both are computed again from the last checkpoint, which has all clients.

The file is one of runs/model_file.py: .npz, an array a leaf, and a JSON string
`meta`. numpy alone reads it; safetensors would need a package at both ends, and
has no place for nested settings.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.analysis import open_run
from fedjax_pfl.client.personalization import Cosine, Euclidean
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.algorithm import Client, Server, View
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import AnyPath, Scores
from fedjax_pfl.data.images import IMAGE
from fedjax_pfl.data.transforms import find_recipe
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.evaluation.choices import main_view
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.models.checkpoint_names import PUBLIC
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.settings import Settings, flat_config
from fedjax_pfl.settings.schema import FIELDS
from fedjax_pfl.settings.validate import effective
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.privacy_budget import budget_of
from fedjax_pfl.training.program import as_one_client
from fedjax_pfl.training.state import random_streams

SERVER = 'server'
HEAD = {
  'network': 'logits = network(x)',
  'concatenated': 'logits = [E_1(x), .., E_M(x)] head/kernel + head/bias; E_m '
  'is the network without its head, of row m of all encoders/',
}
NEAREST = {
  'euclidean': 'the class c that is present with the smallest |f - means[c]|',
  'cosine': 'the class c that is present with the largest cos(f, means[c])',
}
ADAPTED = (
  '; in a layer with lora_a and lora_b, kernel + lora_alpha / lora_rank lora_a '
  'lora_b, in the shape of kernel, takes its place'
)
# Fields of a config that make the task of a model.
TASK = [name for name, one in FIELDS.items() if one.section == 'model']
TASK += ['dataset', 'image_size', 'preprocessing', 'feature_width']
CIFAR10 = 'airplane automobile bird cat deer dog frog horse ship truck'
# In the order of the alphabet (Krizhevsky 2009).
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy
bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee clock
cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange
orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CLASSES = {'cifar10': CIFAR10, 'cifar100': CIFAR100}  # in their numbers' order


class Choice(NamedTuple):
  """Which model of a run: of a client in a view, or the server's."""

  client: int | None  # None: the server
  view: str  # '' of the server

  def __str__(self) -> str:
    is_server = self.client is None
    return 'the server' if is_server else f'client {self.client}, {self.view},'


def export(
  workdir: AnyPath,
  client: str,
  view: str,
  output: AnyPath,
  log: open_run.Log,
  edit: open_run.Edit | None,
  private: bool = False,
) -> Path:
  """Write a model of the run to `output`; return its path.

  `client` is a number or 'server'; without a view it is that of the result.
  With `private` the file holds what the budget of the run covers, no more.
  """
  path = check_output(output)
  settings, data = open_run.read_run(workdir, log, edit, moved=True)
  result, names = run_dir.load_result(workdir), client_names(workdir)
  choice = choose(settings, result, client, view, names)
  if private:
    check_private(workdir, choice)
  experiment = open_run.rebuild(settings, data, log, edit)
  if private:
    return export_private(experiment, workdir, path, log)
  return export_model(experiment, workdir, choice, path, log)


def check_output(output: AnyPath, suffix: str = '.npz') -> Path:
  """Return the path; refuse another ending, an old file, no folder."""
  path = Path(output)
  causes = {
    'a folder, or the ending of another format': path.suffix != suffix,
    'it is there already, and nothing is overwritten': path.exists(),
    f'there is no folder {path.parent}': not path.parent.is_dir(),
  }
  for cause, is_so in causes.items():
    if is_so:
      expected = f'a new file *{suffix} in a folder that exists'
      raise bad_input('out', got=str(path), expected=expected, cause=cause)
  return path


def choose(
  settings: Settings,
  result: Mapping[str, Any],
  client: str,
  view: str,
  names: Sequence[str] = (),
) -> Choice:
  """Return the choice; the view of a client is that of the result if ''.

  A client goes by its name, where it has one, or by its number.
  """
  if client == SERVER:
    if view:
      expected = 'none: the server has one model, which is not personalised'
      cause = 'a client was meant'
      raise bad_input('view', got=view, expected=expected, cause=cause)
    return Choice(None, '')
  last = settings.data.num_seen_clients - 1
  if client in names:
    client = f'{names.index(client)}'
  if not (client.isascii() and client.isdecimal() and int(client) <= last):
    expected = f'a client of the run, 0 to {last}, or {SERVER}'
    raise bad_input(
      'client', got=client, expected=expected, choices=names or None
    )
  chosen = main_view(settings.evaluation.views)
  if settings.evaluation.select == 'validation':
    chosen = result['validation']['view']
  return Choice(int(client), view or chosen)


def client_names(workdir: AnyPath) -> list[str]:
  """Return the names of the clients of a run; [] where they have none."""
  names = run_dir.load_clients(workdir).names
  return [] if names is None else names.tolist()


def export_model(
  experiment: Experiment,
  workdir: AnyPath,
  choice: Choice,
  path: Path,
  log: open_run.Log,
) -> Path:
  """Write the model of this choice; return the path of the file."""
  states = open_run.load_states(experiment, workdir, log)
  model, scores = model_of(experiment, states, choice)
  about = header(experiment, Path(workdir), choice, model, scores)
  with atomic_files.writing(path, 'out'):
    save_model(path, model, about)
  number = sum(leaf.size for leaf in jax.tree.leaves(model))
  tested = 'there are no test examples for it'
  if scores.count:
    tested = f'it is right on {scores.correct} of {scores.count} test examples'
  log(f'{path}: the model of {choice} with {number:,} numbers; {tested}.')
  return path


def check_private(workdir: AnyPath, choice: Choice) -> None:
  """Refuse a model that no budget of the run, as it is stored, covers."""
  cause = budget_of(workdir).no_budget
  if choice.client is not None:
    cause = f'it is the model of {choice} which holds the data of a client'
  if cause:
    raise bad_input(
      'private',
      got=f'{choice} of {workdir}',
      expected='the model of the server after the last round of a run whose '
      'noise came from a secret that is erased, and of which a budget is known',
      choices=[f'--client={SERVER}', 'without --private: not for release'],
      cause=cause,
    )


def export_private(
  experiment: Experiment, workdir: AnyPath, path: Path, log: open_run.Log
) -> Path:
  """Write the server's model, and nothing that was counted without noise."""
  server, _ = open_run.load_states(experiment, workdir, log)
  model, settings = global_model(experiment, server), experiment.settings
  budget = run_dir.load_result(workdir)['privacy']
  about = {
    **about_model(experiment, model),  # no name of the clients' own classes
    'algorithm': settings.algorithm,
    'round': experiment.rounds,
    'client': SERVER,
    'privacy': budget,
    'version': run_dir.load_config(workdir).get('version'),
  }
  with atomic_files.writing(path, 'out'):
    save_model(path, model, about)
  number = sum(leaf.size for leaf in jax.tree.leaves(model))
  start = ', with what its start has spent' * ('start' in budget)
  log(
    f'{path}: the private model of the server with {number:,} numbers, epsilon '
    f'{budget["epsilon"]:.3g} at delta {budget["delta"]:g}{start}.'
  )
  return path


def model_of(
  experiment: Experiment, states: tuple[Server, Client], choice: Choice
) -> tuple[View, Scores]:
  """Return the model of this choice, and its scores."""
  if choice.client is None:
    return server_model(experiment, states[0])
  return client_model(experiment, states, choice)


def client_model(
  experiment: Experiment, states: tuple[Server, Client], choice: Choice
) -> tuple[View, Scores]:
  """Return the model of a client in a view, and its scores."""
  algorithm, view = experiment.stages[-1].algorithm, choice.view
  evaluate.check_views(
    [view], evaluate.view_names(algorithm, *states, experiment.train)
  )
  normalise = experiment.task.normalise
  evaluate_fn = evaluate.make_evaluate(
    algorithm, normalise, [view], keep_models=True
  )
  key = random_streams(experiment.settings.seed)['evaluation']
  ids = jnp.array([choice.client])
  answers = evaluate_fn(*states, ids, *experiment.eval_data, key)
  scores, models = jax.tree.map(lambda leaf: leaf[0], answers)
  return models[view], scores[view]


def server_model(experiment: Experiment, server: Server) -> tuple[View, Scores]:
  """Return the one model of the server, and its scores on all tests.

  A data set may have none of its own: those of the clients are parts of it.
  """
  model, tests = global_model(experiment, server), experiment.dataset.test
  if not len(tests.y):
    return model, Scores(jnp.array(0), jnp.array(0))
  algorithm = experiment.stages[-1].algorithm
  normalise = experiment.task.normalise
  score = partial(score_view, algorithm.predict, normalise=normalise)
  return model, jax.jit(score)(model, as_one_client(tests))


def global_model(experiment: Experiment, server: Server) -> View:
  """Return the one model of the server; refuse a method without one."""
  algorithm = experiment.stages[-1].algorithm
  if algorithm.global_model is None:
    raise bad_input(
      'client',
      got=SERVER,
      expected=f'a client: {experiment.settings.algorithm} has no global model',
      choices=[f'0 to {experiment.settings.data.num_seen_clients - 1}'],
      cause='a method whose server holds a part of the model, or several',
    )
  return algorithm.global_model(server)


# ---- The header of a file ----------------------------------------------------


def header(
  experiment: Experiment, run: Path, choice: Choice, model: View, scores: Scores
) -> dict[str, Any]:
  """Return the header of a model of this run, in the types of JSON."""
  settings = experiment.settings
  stored, result = run_dir.load_config(run), run_dir.load_result(run)
  is_chosen = settings.evaluation.select == 'validation'
  correct, count = int(scores.correct), int(scores.count)
  names, client_name = experiment.data.names, {}
  if names and choice.client is not None:
    client_name = {'client_name': names[choice.client]}
  return {
    **about_model(experiment, model),
    'class_names': class_names(experiment),
    'dtype': f'{experiment.dataset.train.x.dtype}',
    'task': {name: flat_config(settings)[name] for name in TASK},
    'algorithm': settings.algorithm,
    'run': run.resolve().name,
    'dataset': settings.data.dataset,
    'data': experiment.data_id,
    'seed': settings.seed,
    'round': result['validation']['round'] if is_chosen else experiment.rounds,
    'client': SERVER if choice.client is None else choice.client,
    **client_name,
    'view': choice.view or 'global',
    'test_accuracy': 100 * correct / count if count else None,
    'test_correct': correct,
    'test_count': count,
    'version': stored.get('version'),
    'commit': stored.get('commit'),
  }


def about_model(experiment: Experiment, model: View) -> dict[str, Any]:
  """Return how to use a model: its settings, its input, its classes."""
  settings, dataset = experiment.settings, experiment.dataset
  rule, adapters = rule_of(model), {}
  if rank := settings.model.lora_rank:
    rule = {**rule, 'text': rule['text'] + ADAPTED}
    adapters = {'lora_rank': rank, 'lora_alpha': settings.model.lora_alpha}
  return {
    'model': settings.model.name,
    'model_settings': model_settings(experiment),
    'rule': rule,
    'hp': effective(settings),
    **adapters,
    # BatchNorm normalises with the images that are predicted together.
    'batch_statistics': experiment.tests_by_batch,
    'image_shape': dataset.train.x.shape[1:],
    **input_of(experiment),
    'num_classes': dataset.num_classes,
    'class_names': public_names(experiment),
  }


def class_names(experiment: Experiment) -> list[str]:
  """Return the names of the classes, those of the user's own data, too."""
  return [*experiment.dataset.class_names] or public_names(experiment)


def public_names(experiment: Experiment) -> list[str]:
  """Return the names of the classes of a known set, or else their numbers."""
  numbers = ' '.join(map(str, range(experiment.dataset.num_classes)))
  return CLASSES.get(experiment.settings.data.dataset, numbers).split()


def input_of(experiment: Experiment) -> dict[str, Any]:
  """Return how an example becomes the input of the model."""
  data, dtype = experiment.settings.data, experiment.dataset.train.x.dtype
  model = experiment.settings.model
  if model.frozen_features:
    return {'input': f'x = the features by {experiment.settings.init_from}'}
  if dtype != IMAGE:
    return {'input': f'x = the example as it is, {dtype}'}
  recipe = find_recipe(data.dataset, data.preprocessing)
  side = model.model_image_size
  scaled = f', scaled linearly to {side}x{side}' if side else ''
  if model.name in PUBLIC:
    scaled += ', a grey image in three channels'
  return {
    'input': f'x = (image / 255 - image_mean) / image_std{scaled}',
    'image_mean': recipe.mean,
    'image_std': recipe.std,
  }


def rule_of(model: View) -> dict[str, str]:
  """Return how predictions follow from the arrays; f is the head's input.

  A view that is no network has a sentence of its own, `rule`.
  """
  name = type(model).__name__.lower()
  if not isinstance(model, Mapping | Euclidean | Cosine):
    own = getattr(model, 'rule', "as `predict` in the method's file says")
    text = f"{own}. The network is params/, f its head's input"
    return {'name': f'network, {name}', 'text': text}
  is_nearest = isinstance(model, Euclidean | Cosine)
  params = model.model.params if is_nearest else model
  features = 'concatenated' if 'encoders' in params else 'network'
  if not is_nearest:
    return {'name': features, 'text': HEAD[features]}
  return {
    'name': f'{features}, {name}',
    'text': f'{HEAD[features]}; in place of the head, whose input is f, counts '
    f'{NEAREST[name]}. The network is model/params, the rest model/means '
    'and model/present',
  }


def model_settings(experiment: Experiment) -> dict[str, Any]:
  """Return the fields of the flax module of a known model: widths, depth."""
  model = MODELS.get(experiment.settings.model.name)
  if model is None:
    return {}
  dataset = experiment.dataset
  module = model.make(dataset.train.x.shape[1:], dataset.num_classes)
  no_setting = {'parent', 'name', 'inits'}  # flax's own; the model has begun
  fields = {one.name for one in dataclasses.fields(module)} - no_setting
  values = {name: getattr(module, name) for name in sorted(fields)}
  return {name: getattr(v, '__name__', v) for name, v in values.items()}
