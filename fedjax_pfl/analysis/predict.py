"""Predict images with a model of a finished run, or of a file of `export`.

Rows of a table are as they are in the user's file: gaps are filled and columns
standardised as in training, by numbers of the run or of the file's header.

Rows are predicted in batches of one size, the last one padded: without
statistics of the batch an answer does not depend on its neighbours.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.analysis import chosen_model, open_run
from fedjax_pfl.analysis.export import check_output
from fedjax_pfl.analysis.model_header import (
  TOGETHER,
  class_names,
  scale_of_model,
)
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.algorithm import View
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import AnyPath, Array, Task
from fedjax_pfl.core.user_code import describe, is_code
from fedjax_pfl.data import image_folder, table
from fedjax_pfl.data.images import IMAGE, Shape
from fedjax_pfl.data.standardise import Scale
from fedjax_pfl.evaluation.metrics import TEST_BATCH
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings.schema import FIELDS
from fedjax_pfl.settings.validate import from_flat
from fedjax_pfl.training import build_method

ROWS = 16  # of a batch, where rows do not depend on one another


class Predictions(NamedTuple):
  """The classes of some images."""

  labels: list[str]  # [N] the most probable class
  probabilities: np.ndarray  # [N, Y]
  classes: list[str]  # [Y]


class Predictor(NamedTuple):
  """A model that predicts, and what it reads."""

  image_size: int  # of image files: see DataSettings
  task: Task
  predict: Callable[[View, Array, Array], Array]  # (model, x, mask): [B, Y]
  model: View
  shape: Shape  # of an example
  classes: list[str]
  is_by_batch: bool  # BatchNorm normalises with what is predicted together
  columns: Sequence[str] = ()  # of a table
  scale: Scale | None = None  # of these


def predict(
  source: AnyPath,
  images: Any,
  *,
  client: str | int = '',
  view: str = '',
  log: open_run.Log = print,
) -> Predictions:
  """Return the classes that a model of a run gives to images.

  Args:
    source: the directory of a finished run, or a .npz that `fedjax-pfl export`
      wrote.
    images: [N, H, W, ch], or [N, H, W] of grey ones, or a single one without N;
      uint8 as in the training set. Inputs [N, ...] of a run that has those; of
      a table rows [N, D] as in its file, NaN for gaps, with the columns that
      were used: `columns` in the header of an exported file.
    client: of a run: the name of a client, its number, or 'server'. A file has
      the model of one.
    view: of a run: 'initial', 'finetuned', ..; '' is that of the result.
    log: called with each sentence that a user should read.

  Returns:
    Predictions: labels [N], the names of the classes; probabilities [N, Y]; and
    classes [Y].

  >>> found = pfl.predict('runs/a', x, client='hospital3')  # doctest: +SKIP
  >>> found.labels[0], found.probabilities[0].max()  # doctest: +SKIP
  ('tumour', 0.93)
  """
  predictor = _load(source, f'{client}', view, log)
  return _classify(predictor, _examples(predictor, images))


def predict_folder(
  source: AnyPath,
  folder: AnyPath,
  out: AnyPath,
  client: str,
  view: str,
  log: open_run.Log,
  edit: open_run.Edit | None,
) -> Path:
  """Write a row for every image file of a folder to a CSV; return its path.

  Of a table `folder` is another one; its rows are numbered from 1.
  """
  path, is_table = check_output(out, '.csv'), Path(folder).is_file()
  files = [] if is_table else image_folder.image_files(folder)
  predictor = _load(source, client, view, log, edit)
  shape, columns = predictor.shape, predictor.columns
  if is_table and columns:
    x = _examples(predictor, table.features_of(folder, columns))
    names, kind = range(1, len(x) + 1), 'row'
  elif is_table or shape.dtype != IMAGE:
    raise _other_examples(predictor, f'{folder}')
  else:
    kind, size = 'file', predictor.image_size
    x = image_folder.read_files(files, shape.image_shape, size)
    names = [file.relative_to(folder).as_posix() for file in files]
  labels, probabilities, classes = _classify(predictor, x)
  stream = io.StringIO()
  rows = csv.writer(stream, lineterminator='\n')
  rows.writerow([kind, 'class', *(f'p_{name}' for name in classes)])
  for name, label, row in zip(names, labels, probabilities, strict=True):
    rows.writerow([name, label, *(f'{share:.6f}' for share in row)])
  with atomic_files.writing(path, 'out'):
    atomic_files.write_bytes(path, stream.getvalue().encode())
  log(f'{path}: {kind}s {len(x):,}, classes {len(classes)}.')
  return path


def _load(
  source: AnyPath,
  client: str,
  view: str,
  log: open_run.Log,
  edit: open_run.Edit | None = None,
) -> Predictor:
  """Return the model of a client of a run, or that of a file."""
  if Path(source).is_file():
    predictor = _of_file(source, client, view)
  else:
    predictor = _of_run(source, client, view, log, edit)
  if predictor.is_by_batch:
    log(TOGETHER)
  return predictor


def _of_run(workdir, client, view, log, edit) -> Predictor:
  settings, data = open_run.read_run(workdir, log, edit, moved=True)
  result = run_dir.load_result(workdir)
  names = chosen_model.client_names(workdir)
  owner = chosen_model.owner_of(settings, result, client, view, names)
  experiment = open_run.rebuild(settings, data, log, edit)
  states = open_run.load_states(experiment, workdir, log)
  model = chosen_model.model_of(experiment, states, owner)[0]
  predict = experiment.stages[-1].algorithm.predict
  if experiment.task.others or experiment.task.num_labels > 1:
    raise _unusable(workdir, 'models of several kinds, or labels of tokens')
  if settings.model.frozen_features:
    raise _unusable(workdir, 'a head, whose inputs are features')
  return Predictor(
    settings.data.image_size,
    experiment.task,
    predict,
    model,
    experiment.outline.shape,
    class_names(experiment),
    experiment.tests_by_batch,
    experiment.dataset.columns,
    scale_of_model(experiment, owner),
  )


def _of_file(file, client, view) -> Predictor:
  if Path(file).suffix != '.npz':
    raise _unusable(file, 'a model for other programs: .npz is read here')
  params, about = load_model(file)
  known = {'client': ('client', 'client_name'), 'view': ('view',)}
  for (flag, fields), given in zip(known.items(), (client, view), strict=True):
    held = [f'{about[name]}' for name in fields if name in about]
    if given and given not in held:
      raise bad_input(
        flag, got=given, expected=f'{" or ".join(held)}, which {file} has'
      )
  try:
    flat = {name: field.default for name, field in FIELDS.items()}
    settings = from_flat(flat | about['task'])
    images, dtype = tuple(about['image_shape']), about['dtype']
    shape = Shape(images, about['num_classes'], dtype)
    names, rule = [*map(str, about['class_names'])], about['rule']['name']
    is_by_batch = bool(about['batch_statistics'])
    columns, scale = about.get('columns', ()), about.get('scale')
    if scale:
      scale = Scale(*(np.array(scale[x], float) for x in Scale._fields))
      scale = scale._replace(std=np.nan_to_num(scale.std, nan=np.inf))
  except (LookupError, TypeError, ValueError) as error:
    raise _unusable(file, f'a header without {error}') from error
  name = settings.model.name
  if rule != 'network' or is_code(name) or settings.model.frozen_features:
    raise _unusable(file, f'the rule {rule!r} with {describe(name)}')
  task = build_method.build_task(settings, shape)
  expected = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  shapes = [jax.tree.map(np.shape, dict(tree)) for tree in (expected, params)]
  is_other = scale and {*map(np.shape, scale)} != {shape.image_shape}
  if shapes[0] != shapes[1] or len(names) != shape.num_classes or is_other:
    raise _unusable(file, 'arrays that are not those of its model')
  return Predictor(
    settings.data.image_size,
    *(task, task.logits, params, shape, names, is_by_batch, columns, scale),
  )


def _unusable(source: AnyPath, what: str) -> BadInput:
  return bad_input(
    'run',
    got=f'{source}, with {what}',
    expected='a run of one model and one label an example, or a file that this '
    'version has exported without --private, of a network that is not your own',
    choices=['the directory of the run, in place of its file'],
  )


def _other_examples(predictor: Predictor, got: str) -> BadInput:
  shape, columns = predictor.shape, predictor.columns
  form = ', '.join(map(str, shape.image_shape))
  named = f'; or a .csv with {", ".join(columns[:20])}' * bool(columns)
  return bad_input(
    'images',
    got=got,
    expected=f'{shape.dtype} [N, {form}], or a single one{named}',
    cause='images of another size, or pixels that were divided by 255',
  )


def _examples(predictor: Predictor, images: Any) -> np.ndarray:
  """Return the examples [N, ...]; refuse others than those of training."""
  shape, scale = predictor.shape, predictor.scale
  x, form = np.asarray(images), shape.image_shape
  if form[-1:] == (1,) and x.shape[-1:] != (1,):
    x = x[..., None]  # grey
  if x.shape == form:
    x = x[None]
  is_other = (x.dtype == IMAGE) != (shape.dtype == IMAGE)
  if x.shape[1:] != form or is_other:
    raise _other_examples(predictor, describe(np.asarray(images)))
  x = x.astype(shape.dtype)
  if predictor.columns and scale is None:
    raise bad_input(
      'client',
      got='server, of a run with standardise=client',
      expected='a client, by whose scale a row becomes an input',
    )
  return scale.applied(x).astype(shape.dtype) if scale else x


def _classify(predictor: Predictor, x: np.ndarray) -> Predictions:
  """Return the predictions of all rows, in batches of one size."""
  classes = predictor.classes
  size = TEST_BATCH if predictor.is_by_batch else ROWS

  @jax.jit
  def probabilities(model, x, number):
    inputs = predictor.task.normalise(x)
    mask = (jnp.arange(size) < number).astype(float_dtype(inputs))
    return jax.nn.softmax(predictor.predict(model, inputs, mask))

  shares = [np.zeros((0, len(classes)), np.float32)]
  for first in range(0, len(x), size):
    rows = x[first : first + size]
    padded = np.zeros((size, *x.shape[1:]), x.dtype)
    padded[: len(rows)] = rows
    answers = probabilities(predictor.model, padded, len(rows))
    shares.append(np.asarray(answers)[: len(rows)])
  every = np.concatenate(shares)
  labels = [classes[label] for label in every.argmax(1)]
  return Predictions(labels, every, classes)
