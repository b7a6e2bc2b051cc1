"""What a file of one model says about it, in the types of JSON."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedjax_pfl.analysis.chosen_model import SERVER, Owner
from fedjax_pfl.client.personalization import Cosine, Euclidean
from fedjax_pfl.core.algorithm import View
from fedjax_pfl.core.types import Scores
from fedjax_pfl.data.images import IMAGE
from fedjax_pfl.data.standardise import Scale
from fedjax_pfl.data.transforms import find_recipe
from fedjax_pfl.models.public_checkpoints import PUBLIC
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import flat_config
from fedjax_pfl.settings.schema import FIELDS
from fedjax_pfl.settings.validate import effective
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
ADAPTED = (
  '; in a layer with lora_a and lora_b, kernel + lora_alpha / lora_rank lora_a '
  'lora_b, in the shape of kernel, takes its place'
)
# Fields of a config that make the task of a model.
TASK = [name for name, field in FIELDS.items() if field.section == 'model']
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


TOGETHER = (
  'This model predicts with batch statistics: an answer depends on the images '
  'that are predicted together. With norm_statistics=running it does not.'
)


def header(
  experiment: Experiment, run: Path, owner: Owner, model: View, scores: Scores
) -> dict[str, Any]:
  """Return the header of a model of this run, in the types of JSON."""
  settings = experiment.settings
  stored, result = run_dir.load_config(run), run_dir.load_result(run)
  is_chosen = settings.evaluation.select == 'validation'
  correct, count = int(scores.correct), int(scores.count)
  names, columns = experiment.data.names, experiment.dataset.columns
  scale, client_name = scale_of_model(experiment, owner), {}
  of_rows = {'columns': [*columns], 'scale': scale and scale._asdict()}
  if names and owner.client is not None:
    client_name = {'client_name': names[owner.client]}
  return {
    **about_model(experiment, model),
    'class_names': class_names(experiment),
    'dtype': f'{experiment.dataset.train.x.dtype}',
    **(of_rows if columns else {}),
    'task': {name: flat_config(settings)[name] for name in TASK},
    'algorithm': settings.algorithm,
    'run': run.resolve().name,
    'dataset': settings.data.dataset,
    'data': experiment.data_id,
    'seed': settings.seed,
    'round': result['validation']['round'] if is_chosen else experiment.rounds,
    'client': SERVER if owner.client is None else owner.client,
    **client_name,
    'view': owner.view or 'global',
    'test_accuracy': 100 * correct / count if count else None,
    'test_correct': correct,
    'test_count': count,
    'version': stored.get('version'),
    'commit': stored.get('commit'),
  }


def scale_of_model(experiment: Experiment, owner: Owner) -> Scale | None:
  """Return the scale of a table's rows; None: each client has its own."""
  scales, client = experiment.dataset.scales, owner.client
  if experiment.settings.data.standardise != 'client':
    return scales[0] if scales else None
  return None if client is None or not scales else scales[client]


def private_header(
  experiment: Experiment, run: Path, model: View
) -> dict[str, Any]:
  """Return the header of a private model: nothing counted without noise."""
  return {
    **about_model(experiment, model),  # no name of the clients' own classes
    'algorithm': experiment.settings.algorithm,
    'round': experiment.rounds,
    'client': SERVER,
    'privacy': run_dir.load_result(run)['privacy'],
    'version': run_dir.load_config(run).get('version'),
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
  if experiment.dataset.columns:
    rule = 'x = (row - mean) / std, 0 where std is null'
    return {'input': f'{rule}; a gap is the median of its column before'}
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
    rule = getattr(model, 'rule', "as `predict` in the method's file says")
    text = f"{rule}. The network is params/, f its head's input"
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
  fields = {field.name for field in dataclasses.fields(module)} - no_setting
  values = {name: getattr(module, name) for name in sorted(fields)}
  return {name: getattr(v, '__name__', v) for name, v in values.items()}
