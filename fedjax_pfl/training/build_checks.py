"""Settings that do not fit the data or the method: refused before training."""

import re
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import needs_body
from fedjax_pfl.around.aggregation import MEANS
from fedjax_pfl.client.frozen_features import is_exact
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  FINITE,
  HAS_SENT,
  JOINED,
  Stage,
  private_names,
)
from fedjax_pfl.core.errors import BadInput, bad_input, refuse
from fedjax_pfl.core.example_losses import LOSSES, labels_of
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import CLASSES, ClientData, Task
from fedjax_pfl.core.user_code import FORM, call, is_code, value_of
from fedjax_pfl.data.images import IMAGE, Shape
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.federated.communication import messages
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_method import call_method

VIEW = re.compile(r'(?!validation_|unseen)[\w.]+')  # a file, and arrays
TAKEN = {  # of metrics, by the rounds and by lines of metrics.jsonl
  *(FINITE, HAS_SENT, JOINED, 'round', 'time', 'stage', 'epsilon'),
  'epsilon_not_private',
  *('images_per_second', 'bytes_down', 'bytes_up', 'sim_seconds'),
  *('dropped', 'excluded', 'excluded_clients'),
}


# ---- the method --------------------------------------------------------------


def check_method(
  settings: Settings, stages: tuple[Stage, ...], task: Task, data: ClientData
) -> None:
  """Refuse what this method has not got; it is traced on shapes of data."""
  method, evaluation = settings.algorithm, settings.evaluation
  cause = 'a mistake in that file, or a state of another kind than before'
  traced = lambda run: call_method(settings, run, cause)
  shapes = traced(lambda: [*stage_shapes(stages, data)])
  if is_code(method) or settings.training.around:
    traced(lambda: check_own_method(settings, shapes, task, data))
  last, server, clients = shapes[-1]
  names = traced(
    lambda: evaluate.view_names(last.algorithm, server, clients, data)
  )
  if settings.compression:
    from fedjax_pfl.around import compression

    compression.check_uploads(settings.compression.name, shapes, data)
  rounds = partial(_trace_rounds, shapes, data)
  codes = {'aggregation': settings.aggregation.rule}
  for name, code in (codes | {'attack': settings.attack.name}).items():
    if is_code(code):
      cause = 'its arguments are others: docs/howto/robust.md'
      call(name, rounds, of=value_of(name, code), cause=cause)
  is_mean = settings.aggregation.rule in MEANS
  if settings.server or settings.attack or not is_mean:
    rounds()  # they refuse in a round
  for views in (settings.final_views, evaluation.eval_views):
    evaluate.check_views(views, names)
  client = jax.eval_shape(lambda rows: trees.gather(rows, 0), clients)
  down = jax.eval_shape(last.algorithm.download, server, client)
  views, later = evaluation.eval_views, settings.data.unseen_clients
  odd = [name for name in names if not VIEW.fullmatch(name)]
  has_model = last.algorithm.global_model is not None
  refuse(
    (
      odd,
      'around' if (wrapper := settings.training.around) else 'algorithm',
      f'{wrapper or method} with a view named {", ".join(map(repr, odd))}',
      'views with names that files and arrays can have, and have not yet',
      'letters, digits, _ and .',
    ),
    (
      last.keep_best and 'initial' not in views,
      *('eval_views', views),
      f'initial among them: of it the clients of {method} keep the models of '
      'their best rounds',
      f'eval_views={",".join((*views, "initial"))}',
    ),
    (
      last.keep_best and evaluation.eval_clients,
      *('eval_clients', evaluation.eval_clients),
      f'0: all clients of {method} keep the models of their best rounds',
      'eval_clients=0',
    ),
    (
      evaluation.eval_global_model and not has_model,
      *('eval_global_model', True),
      f'False for {method}: its server holds no whole model that could be '
      'evaluated on the whole test set',
      'eval_global_model=False, to evaluate the models of the clients alone',
      "test_partition='whole', to evaluate each of them on all tests",
    ),
    (
      later and not trees.num_bytes(down),
      *('unseen_clients', later),
      f'0 for {method}: its server sends nothing, so that a client who comes '
      'later would train alone, as all the others do',
      *('unseen_clients=0', 'a method whose server sends a model'),
    ),
  )


def check_own_method(
  settings: Settings, shapes: Sequence, task: Task, data: ClientData
) -> None:
  """Refuse functions of the user's own that do not fit together.

  A round of each stage is traced, on shapes: what clients keep, and the server,
  stay of the same kind, and the clock goes on. What the file declares private
  is there, and the last stage does not upload it.
  """
  refused = partial(_of_own, settings)

  def checked(algorithm):
    def local_update(*args):
      sent = algorithm.local_update(*args)
      if not isinstance(sent, tuple) or len(sent) != 3:
        cause = 'a return without client, upload or metrics, in this order'
        what = f'{len(sent)} values' if isinstance(sent, tuple) else 'no tuple'
        raise refused(f'local_update that returns {what}', cause)
      return sent

    def aggregate(server, up, senders):
      after = algorithm.aggregate(server, up, senders)
      if getattr(after, 'round', None) is server.round:
        cause = 'a copy of the server without round=server.round + 1'
        raise refused('aggregate that leaves server.round as it is', cause)
      return after

    return algorithm._replace(aggregate=aggregate, local_update=local_update)

  other = 'a function that returns something else than core/algorithm.py says'
  for stage, *states in shapes:
    if not hasattr(states[0], '_replace'):
      kind = type(states[0]).__name__
      raise refused(
        f'a server that is a {kind}', 'a dataclass: write a NamedTuple'
      )
    algorithm, both = checked(stage.algorithm), ('server', 'client')
    *after, metrics = _trace_round(stage, algorithm, states, data)
    for who, new, old in zip(both, after, states, strict=True):
      dtypes = [leaf.dtype for leaf in jax.tree.leaves(new)]
      if any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in dtypes):
        cause = 'jax.random.key_data(key) is kept, wrap_key_data gives a key'
        raise refused(
          f'a key of jax.random in the {who} of {stage.name}', cause
        )
      if trees.kinds(new) != trees.kinds(old):
        odd = {*trees.leaf_names(new)} ^ {*trees.leaf_names(old)}
        leaves = ', '.join(sorted(odd)) or 'of another shape, dtype or record'
        raise refused(
          f'another {who} after a round of {stage.name}: {leaves}', other
        )
    if not {'loss', 'num_steps'} <= {*metrics}:
      raise refused(f'the metrics {", ".join(metrics)} in {stage.name}', other)
    if taken := TAKEN & {*metrics}:
      cause = 'a name that every line of metrics.jsonl has already'
      raise refused(f'a metric named {min(taken)} in {stage.name}', cause)
  sent = messages(stage, *states, data)
  paths = lambda tree: f'/{"/ /".join(trees.leaf_names(tree))}/'
  uploaded, kept = paths(sent.up), paths((sent.state, states[0]))
  declared = getattr(settings.method, 'PRIVATE_LEAVES', ())
  if not isinstance(declared, tuple):
    raise refused(f'PRIVATE_LEAVES {declared!r}', 'a tuple without its comma')
  for part in private_names(declared, task):
    if f'/{part}/' in uploaded:
      raise refused(
        f'private leaves {part} in the upload', 'a mask the wrong way'
      )
    if f'/{part}/' not in kept:
      raise refused(f'private leaves {part}, which nobody has')


def _of_own(settings: Settings, problem: str, cause: str = '') -> BadInput:
  """Return the refusal of a method, or a wrapper, of the user's own."""
  wrapper = settings.training.around
  returned = (
    'a function stage -> Stage'
    if wrapper
    else 'build(task, hp) -> (Stage, ...)'
  )
  return bad_input(
    'around' if wrapper else 'algorithm',
    got=f'{wrapper or settings.algorithm} with {problem}',
    expected=f'{returned}, local_update -> (client, upload, metrics), rounds '
    'that keep the shapes of server and clients, and metrics with loss and '
    'num_steps',
    cause=cause,
  )


def _trace_rounds(shapes, data):
  for stage, *states in shapes:
    _trace_round(stage, stage.algorithm, states, data)


def _trace_round(stage, algorithm, states, data):
  """Return the shapes of what a round of the stage returns."""
  data = jax.eval_shape(stage.prepare_data, states[0], data)
  round_fn = make_round(algorithm, clients_per_chunk=1, mesh=None)
  # Nothing is compiled, not even an array of zeros.
  cohort, key = jax.eval_shape(lambda: (jnp.zeros(1, int), jax.random.key(0)))
  return jax.eval_shape(round_fn, *states, cohort, data, key)


# ---- the inputs --------------------------------------------------------------


def check_inputs(settings: Settings, shape: Shape) -> None:
  """Refuse what is for images alone, or a model that reads other inputs."""
  data, model, dtype = settings.data, settings.model, shape.dtype
  sides, are_images = shape.image_shape, dtype == IMAGE
  for field, size, fits in (
    ('image_size', data.image_size, are_images),
    ('model_image_size', model.model_image_size, len(sides) == 3),
  ):
    if size and not fits:
      expected = f'0 for inputs of {dtype} {tuple(sides)}: images are scaled'
      raise bad_input(field, got=size, expected=expected)
  if are_images:
    return
  default = 'default: `inputs` are what the model gets, as they are'
  one_of(['default'], default).check('preprocessing', data.preprocessing)
  for name in settings.architectures.models or (model.name,):
    if is_code(name) or (MODELS[name].any_shape and dtype == 'float32'):
      continue
    wanted = ('int32', 1) if MODELS[name].tokens else ('float32', 3)
    if (dtype, len(sides)) != wanted:
      raise bad_input(
        'model',
        got=f'{name} for inputs of {dtype} {tuple(sides)}',
        expected='a model of your own; those for images take floats (height, '
        'width, channels), those for text whole numbers (length,)',
        choices=[
          f'model={FORM}',
          *(m for m in MODELS if MODELS[m].tokens or MODELS[m].any_shape),
        ],
      )


def check_labels(settings: Settings, task: Task, shape: Shape) -> None:
  """Refuse other outputs than labels, and what asks for one, or for classes."""
  method, module, kind = settings.algorithm, settings.method, task.labels
  scoring, number = settings.evaluation.scoring, shape.num_labels
  are_other, are_tokens = kind != CLASSES, number != 1
  labels = 'tokens with a label each'
  labels = f'labels that are {kind}' if are_other else labels
  asks = ['NEEDS_CLASSES'] * are_other + ['ONE_LABEL'] * are_tokens
  is_head_alone = all(jax.tree.leaves(task.is_head))
  refuse(
    (
      any(each.num_labels != number for each in (task, *task.others)),
      'model',
      f'{settings.model.name}, with {task.num_labels} outputs an example',
      f'{number}, the labels of an example: features [B, F] have one output, '
      '[B, L, F] one for each token of [B, L]',
      *(m for m in MODELS if MODELS[m].tokens and shape.labels),
    ),
    (
      kind != shape.kind,
      'loss',
      f'{settings.data.loss} for {settings.data.dataset}, whose labels are '
      f'{shape.kind}',
      f'a loss of {shape.kind}',
      *(name for name in LOSSES if labels_of(name) == shape.kind),
    ),
    (
      is_head_alone and needs_body(module),
      'model',
      f'{settings.model.name} with {method}, whose clients keep their head',
      'a model with layers before its head, which clients share',
      *('model=mlp', 'algorithm=fedavg', 'algorithm=ditto'),
    ),
    (
      any(getattr(module, name, False) for name in asks),
      'algorithm',
      f'{method} for {labels}',
      'a method that asks for no class of an example',
      *('fedavg', 'fedbabu', 'fedrep', 'ditto'),
    ),
    (
      are_other and settings.attack.is_of_data,
      'attack',
      f'{settings.attack.name} for {labels}',
      'an attack on uploads: a class is flipped, or aimed at',
    ),
    (
      scoring != 'exact' and (are_other or are_tokens),
      *('scoring', scoring, f'exact for {labels}', 'exact'),
    ),
  )


def check_frozen(settings: Settings, task: Task) -> None:
  """Refuse what is not the same without the body, or with it frozen."""
  model, data = settings.model, settings.data
  same = (
    'features of an image that are the same in every step: no augmentation, '
    'and no BatchNorm with the statistics of a batch'
  )
  # Of code of the user's own this is not known.
  frozen = ['norm_statistics=frozen'] * (not is_code(model.name))
  rows = (
    (
      needs_body(settings.method),
      settings.algorithm,
      'a method that trains and sends the head: it is all there is',
      *('algorithm=fedavg', 'algorithm=ditto'),
    ),
    (
      not task.batch_independent,
      f'{model.name} with norm_statistics={model.norm_statistics}',
      *(same, *frozen),
    ),
    (
      not is_exact(task),
      f'{data.dataset}, which preprocessing={data.preprocessing} augments',
      *(same, 'preprocessing=imagenet', 'preprocessing=unit'),
    ),
  )
  for is_wrong, *row in rows:
    refuse((is_wrong, 'frozen_features', *row, 'frozen_features=False'))
