"""The header of an exported model: all that a reader without us needs."""

import dataclasses
import pathlib
from typing import Any

from fedjax_pfl.analysis.class_names import class_names
from fedjax_pfl.client.personalization import Cosine, Euclidean
from fedjax_pfl.core.algorithm import View
from fedjax_pfl.core.types import Scores
from fedjax_pfl.data import IMAGE, find_recipe
from fedjax_pfl.models.task import MODELS
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.build import Experiment

HEAD = {
  'network': 'logits = network(x)',
  'concatenated': 'logits = [E_1(x), .., E_M(x)] head/kernel + head/bias; E_m '
  'is the network without its head, of row m of all encoders/',
}
NEAREST = {
  'euclidean': 'the class c that is present with the smallest |f - means[c]|',
  'cosine': 'the class c that is present with the largest cos(f, means[c])',
}


def header(
  experiment: Experiment,
  workdir: pathlib.Path,
  client: int | None,
  view: str,
  model: View,
  scores: Scores,
) -> dict[str, Any]:
  """Return the header of a model of this run, in the types of JSON."""
  settings, dataset = experiment.settings, experiment.dataset
  stored, result = run_dir.load_config(workdir), run_dir.load_result(workdir)
  name, shape = settings.data.dataset, dataset.train.x.shape[1:]
  chosen = settings.evaluation.select == 'validation'
  correct, count = int(scores.correct), int(scores.count)
  return {
    'model': settings.model.name,
    'model_settings': model_settings(
      settings.model.name, shape, dataset.num_classes
    ),
    'rule': rule_of(model),
    # BatchNorm normalises with the images that are predicted together.
    'batch_statistics': not experiment.task.batch_independent,
    'image_shape': shape,
    **input_of(experiment),
    'num_classes': dataset.num_classes,
    'class_names': class_names(name, dataset.num_classes),
    'algorithm': settings.algorithm,
    'run': workdir.resolve().name,
    'dataset': name,
    'data': experiment.data_id,
    'seed': settings.seed,
    'round': result['validation']['round'] if chosen else experiment.rounds,
    'client': 'server' if client is None else client,
    'view': view or 'global',
    'test_accuracy': 100 * correct / count if count else None,
    'test_correct': correct,
    'test_count': count,
    'version': stored.get('version'),
    'commit': stored.get('commit'),
  }


def input_of(experiment: Experiment) -> dict[str, Any]:
  """Return how an example becomes the input of the model."""
  data, dtype = experiment.settings.data, experiment.dataset.train.x.dtype
  if dtype != IMAGE:
    return {'input': f'x = the example as it is, {dtype}'}
  recipe = find_recipe(data.dataset, data.preprocessing)
  return {
    'input': 'x = (image / 255 - image_mean) / image_std',
    'image_mean': recipe.mean,
    'image_std': recipe.std,
  }


def rule_of(model: View) -> dict[str, str]:
  """Return how predictions follow from the arrays; f is the head's input."""
  nearest = ''
  if isinstance(model, Euclidean | Cosine):
    nearest, model = type(model).__name__.lower(), model.model.params
  features = 'concatenated' if 'encoders' in model else 'network'
  if not nearest:
    return {'name': features, 'text': HEAD[features]}
  return {
    'name': f'{features}, {nearest}',
    'text': f'{HEAD[features]}; in place of the head, whose input is f, counts '
    f'{NEAREST[nearest]}. The network is model/params, the rest model/means '
    'and model/present',
  }


def model_settings(
  name: str, image_shape: tuple[int, ...], num_classes: int
) -> dict[str, Any]:
  """Return the fields of the flax module of a known model: widths, depth."""
  if name not in MODELS:
    return {}
  model = MODELS[name]
  size = {'side': image_shape[0]} if model.sides else {}
  module = model.make(num_classes=num_classes, **size)
  of_flax = ('parent', 'name')
  values = {
    field.name: getattr(module, field.name)
    for field in dataclasses.fields(module)
    if field.name not in (*of_flax, 'inits')  # the model has begun
  }
  return {
    name: value.__name__ if isinstance(value, type) else value
    for name, value in values.items()
  }
