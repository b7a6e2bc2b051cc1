"""Parity with the golden cases, number by number, in float64.

  pytest tests/parity_test.py --goldens=DIR

Every case file of DIR and its subfolders is one test; every setting comes from
the file. A case whose algorithm is not there yet is skipped by its name.
"""

import re

import flax.linen as nn
import goldens
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_pfl import local, personalize, trees
from fedjax_pfl.algorithm import load
from fedjax_pfl.data import deal_blocks
from fedjax_pfl.engine import init_states, make_round
from fedjax_pfl.evaluate import score_view
from fedjax_pfl.models import layers
from fedjax_pfl.models.task import make_task, task_from_module
from fedjax_pfl.types import Batch, ClientData

KEY = jax.random.key  # nothing random is left in a case: any seed will do


def pytest_generate_tests(metafunc):
  folder = metafunc.config.getoption('--goldens')
  cases = goldens.discover(folder)
  if not cases:
    reason = f'no golden cases in {folder}: give --goldens=DIR'
    cases = {'none': pytest.param(None, marks=pytest.mark.skip(reason))}
  metafunc.parametrize('path', list(cases.values()), ids=list(cases))


pytestmark = pytest.mark.usefixtures('float64')


def test_case(path):
  case = goldens.Case(path)
  play = PLAYERS.get(case['algorithm'].lower())
  if play is None:
    pytest.skip(f'{case["case"]}: {case["algorithm"]} is not there yet')
  play(case)


# ---- rounds ----------------------------------------------------------------


def play_fedavg(case):
  hp = load('fedavg').HParams(training(case), personalization(case))
  play_rounds(case, load('fedavg').build(case_task(case), hp))


def play_fedbabu(case):
  hp = load('fedbabu').HParams(training(case), personalization(case))
  play_rounds(case, load('fedbabu').build(case_task(case), hp))


def play_rounds(case, stages):
  """Play all rounds; compare uploads, losses, server and both views."""
  algorithm = stages[0].algorithm
  train, test = clients_data(case)
  init = case.subtree(case.load(case['common']), 'init/')
  server, clients = init_states(algorithm, train, KEY(0))
  server = server._replace(params=as_given(init))
  one_round = make_round(with_uploads(algorithm))
  losses = {}
  for number, cohort in enumerate(case['participants'], start=1):
    head = server.params
    server, clients, (uploads, metrics) = one_round(
      server, clients, jnp.array(cohort), train, KEY(0)
    )
    for place, i in enumerate(cohort):
      upload = trees.combine(trees.take(uploads, place), head)
      case.check_tree(upload_name(case, i, number), upload)
      steps = metrics['losses'][place, : int(metrics['num_steps'][place])]
      case.check(f'step_loss/client{i}/round{number}', steps)
      losses[number - 1, i] = float(metrics['loss'][place])
    case.check_tree(f'global/round{number}', server.params)
  check_losses(case, losses)
  if 'personalization' in case.settings:
    check_views(case, algorithm, server, clients, train, test)
  else:
    check_final(case, algorithm, server, test)
  case.finish(inputs=('train_mask', 'test_mask'))


def with_uploads(algorithm):
  """Return the algorithm with its uploads among the metrics."""

  def local_update(*args):
    client, upload, metrics = algorithm.local_update(*args)
    return client, upload, (upload, metrics)

  return algorithm._replace(local_update=local_update)


def check_losses(case, losses):
  want = case.arrays['loss']
  absent = -1.0 if (want == -1).any() else np.nan
  if want.shape == (case['clients'], case['rounds']) != want.T.shape:
    losses = {(i, r): loss for (r, i), loss in losses.items()}
  got = np.full(want.shape, absent)
  for place, loss in losses.items():
    got[place] = loss
  case.check('loss', got)


def check_views(case, algorithm, server, clients, train, test):
  names = {'initial': 'initial', 'personalized': 'finetuned'}

  @jax.jit
  def judge(i, server, clients, train, test):
    client = trees.take(clients, i)
    models = algorithm.personalize(server, client, of(train, i), KEY(0))
    x, mask = test.x[test.index[i]], jnp.arange(test.index.shape[1])
    mask = (mask < test.count[i]).astype(x.dtype)
    return {
      prefix: (
        algorithm.predict(models[view], x, mask),
        score_view(algorithm.predict, models[view], of(test, i), as_is),
      )
      for prefix, view in names.items()
    }

  results = [
    judge(i, server, clients, train, test) for i in range(case['clients'])
  ]
  for prefix in names:
    for i, result in enumerate(results):
      logits, _ = result[prefix]
      case.check(f'{prefix}/client{i}/logits', logits[: int(test.count[i])])
    scores = [result[prefix][1] for result in results]
    accuracy = [100 * score.correct / score.count for score in scores]
    case.check(f'{prefix}/accuracy', accuracy)
    case.check(f'{prefix}/loss', [score.loss for score in scores])


def check_final(case, algorithm, server, test):
  rows = [client_rows(test, i) for i in range(case['clients'])]
  logits = [
    algorithm.predict(server.params, x, jnp.ones(len(x))) for x, _ in rows
  ]
  case.check('final/logits', jnp.stack(logits))
  hits = [
    jnp.mean(z.argmax(1) == y) for z, (_, y) in zip(logits, rows, strict=True)
  ]
  scale = 100 if case.arrays['final/accuracy'].max() > 1 else 1
  case.check('final/accuracy', scale * jnp.stack(hits))


# ---- fine-tuning and templates ---------------------------------------------


def play_finetuning(case):
  task = case_task(case)
  train, test = clients_data(case)
  start = start_params(case)
  rates = {'body': case['body_lr'], 'head': case['head_lr']}
  parts = [part for part, rate in rates.items() if rate]
  if len({rate for rate in rates.values() if rate}) > 1:
    pytest.skip(f'{case["case"]}: two rates in one fit are not there yet')
  personal = personalize.Personalization(
    epochs=(case['epochs'],),
    part='full' if len(parts) == 2 else parts[0],
    learning_rate=max(rates.values()),
    momentum=case['momentum'],
    batch_size=case['batch_size'],
    shuffle=False,
  )

  @jax.jit
  def run(data):
    models = personalize.finetune(task, start, data, KEY(0), personal)
    _, info = local.fit(
      task.loss,
      start,
      data,
      KEY(0),
      tx=local.trainable(
        optax.sgd(personal.learning_rate, personal.momentum),
        personalize.part_mask(task, personal.part),
      ),
      batching=local.Batching(
        personal.batch_size, case['epochs'], task.augment, shuffle=False
      ),
    )
    return models['finetuned'], info

  @jax.jit
  def judge(params, x, y):
    mask = jnp.ones(len(x))
    return task.logits(params, x, mask), task.loss(
      params, Batch(x, y, mask), KEY(0)
    )

  results = {'initial': [], 'personalized': []}
  for i in range(case['clients']):
    model, info = run(of(train, i))
    case.check_tree(f'client{i}/final', model)
    case.check(f'step_loss/client{i}', info.losses[: int(info.num_steps)])
    x, y = client_rows(test, i)
    for prefix, params in (('initial', start), ('personalized', model)):
      logits, loss = judge(params, x, y)
      case.check(f'{prefix}/client{i}/logits', logits)
      accuracy = 100 * np.mean(np.asarray(logits).argmax(1) == np.asarray(y))
      results[prefix].append((accuracy, loss))
  for prefix, rows in results.items():
    case.check(f'{prefix}/accuracy', [accuracy for accuracy, _ in rows])
    case.check(f'{prefix}/loss', [loss for _, loss in rows])
  case.finish(inputs=('train_mask', 'test_mask'))


def play_without_head(case):
  task = case_task(case)
  train, test = clients_data(case)
  start = start_params(case)
  predict = personalize.make_predict(task)

  @jax.jit
  def judge(model, x, mask):
    views = personalize.Euclidean(model), personalize.Cosine(model)
    closeness = [predict(view, x, mask) for view in views]
    return [task.features(start, x, mask), *closeness]

  for variant, size in case['template_batch'].items():
    templates = jax.jit(
      lambda data, size=size: personalize.class_templates(
        task, start, data, KEY(0), size
      )
    )
    for i in range(case['clients']):
      model = templates(of(train, i))
      place = f'{variant}/client{i}'
      means = jnp.where(model.present[:, None], model.means, jnp.nan)
      case.check(f'{place}/templates', means)
      x, y = client_rows(test, i)
      batches = [judge(model, *b) for b in padded_batches(x, size)]
      features, *closeness = (
        np.concatenate(rows)[: len(x)] for rows in zip(*batches, strict=True)
      )
      case.check(f'{place}/test_features', features)
      for close, name, sign, what in zip(
        closeness,
        ('euclidean', 'cosine'),
        (-1, 1),
        ('distance', 'similarity'),
        strict=True,
      ):
        best = close.argmax(1)
        case.check(f'{place}/{name}/{what}', sign * close)
        case.check(f'{place}/{name}/prediction', best, exact=True)
        correct = np.sum(best == np.asarray(y))
        case.check(f'{place}/{name}/correct', correct, exact=True)
  case.finish(inputs=('train_mask', 'test_mask'))


def padded_batches(x, size):
  """Yield (rows [size], mask [size]): one shape, so one compilation."""
  for first in range(0, len(x), size):
    rows = x[first : first + size]
    rest = [(0, size - len(rows))] + [(0, 0)] * (x.ndim - 1)
    yield jnp.pad(rows, rest), (jnp.arange(size) < len(rows)).astype(x.dtype)


# ---- models ----------------------------------------------------------------


def play_forward(case):
  """Compare forward and backward, of small networks under both lowerings.

  Of large ones the products are compared, and XLA's own convolutions forward:
  every backward pass takes many seconds to compile.
  """
  check = (
    forward_of_generated if 'params' in case.settings else forward_of_clients
  )
  for lowering in ('lax', 'gemm'):
    check(case, lowering)
  if 'params' in case.settings:
    check_all_steps(case)  # under one lowering: 20 s of compilation each
    case.finish(inputs=('x', 'y', 'running_after_1/', 'logits_running'))
  else:
    case.finish()


def forward_of_clients(case, lowering):
  task = case_task(case, lowering)
  inputs = case.load(case['common'])
  params = as_given(case.subtree(inputs, 'init/'))
  number, i = map(int, re.findall(r'\d+', case['batch']))
  x, y = inputs['train_x'][i, :number], inputs['train_y'][i, :number]
  check_gradients(case, task, params, jnp.asarray(x), jnp.asarray(y))
  logits_of = jax.jit(task.logits)
  for i, images in enumerate(inputs['test_x']):
    logits = logits_of(params, jnp.asarray(images), jnp.ones(len(images)))
    case.check(f'test_logits/client{i}', logits)


def forward_of_generated(case, lowering):
  task, params, x, y = generated_task(case, lowering)
  case.check_tree('init', params)
  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert size == case['parameters']
  if lowering == 'gemm':
    check_gradients(case, task, params, x, y)
  else:
    logits = jax.jit(task.logits)(params, x, jnp.ones(len(x)))
    case.check('logits', logits)


def generated_task(case, lowering):
  x, y = jnp.asarray(case.arrays['x']), jnp.asarray(case.arrays['y'])
  task = make_task(
    model_name(case),
    image_shape=x.shape[1:],
    num_classes=case['classes'],
    lowering=lowering,
  )
  return task, as_given(goldens.generated(case['params'])), x, y


def check_gradients(case, task, params, x, y):
  batch = Batch(x, y, jnp.ones(len(x)))

  @jax.jit
  def run(params, batch):
    loss, grads = jax.value_and_grad(task.loss)(params, batch, KEY(0))
    logits = task.logits(params, batch.x, batch.mask)
    return loss, grads, logits, task.features(params, batch.x, batch.mask)

  loss, grads, logits, features = run(params, batch)
  case.check('loss', loss)
  case.check('logits', logits)
  if 'features' in case.arrays:
    case.check('features', features)
  case.check_tree('grad', grads)


def check_all_steps(case):
  task, params, x, y = generated_task(case, 'auto')
  for part in ('full', 'body'):
    if f'steps_{part}/loss' in case.arrays:
      check_steps(case, task, params, x, y, part)


def check_steps(case, task, params, x, y, part):
  prefix = f'steps_{part}'
  text = case['arrays'][f'{prefix}/...']
  steps, rate, momentum = re.search(
    r'(\d+) steps .*?lr ([\d.]+), momentum ([\d.]+)', text
  ).groups()
  data = ClientData(x, y, jnp.arange(len(x)), jnp.array(len(x)))

  @jax.jit
  def run(params):
    params, info = local.fit(
      task.loss,
      params,
      data,
      KEY(0),
      tx=local.trainable(
        optax.sgd(float(rate), float(momentum)),
        personalize.part_mask(task, part),
      ),
      batching=local.Batching(len(x), int(steps), task.augment, False),
    )
    return params, info, task.logits(params, x, jnp.ones(len(x)))

  params, info, logits = run(params)
  case.check(f'{prefix}/loss', info.losses)
  case.check(f'{prefix}/logits', logits)
  case.check_tree(prefix, params)


# ---- the shard partition ---------------------------------------------------


def play_partition(case):
  """Replay the recorded draws: every index must come out, in order."""
  for name in case['sets']:
    for s in case['shards_per_client']:
      for split in ('train', 'test'):
        place = f'{name}/s{s}/{split}'
        if f'{place}/client_indices' not in case.arrays:
          continue
        replay(case, place, case.arrays[f'{name}/{split}_labels'])
  case.finish(
    inputs=[
      f'{name}/{split}_labels'
      for name in case['sets']
      for split in ('train', 'test')
    ]
    + [
      key
      for key in case.arrays.files
      if key.endswith(('class_assignment', 'block_choice'))
    ]
  )


def replay(case, place, labels):
  chosen = case.arrays[f'{place}/block_choice']
  sizes = np.zeros_like(chosen)

  def choose(client, position, pool_size):
    sizes[client, position] = pool_size
    return int(chosen[client, position])

  assignment = case.arrays[f'{place}/class_assignment']
  clients = deal_blocks(labels.astype(int), assignment.astype(int), choose)
  case.check(f'{place}/pool_size', sizes)
  case.check(f'{place}/client_sizes', [len(rows) for rows in clients])
  case.check(f'{place}/client_indices', np.concatenate(clients))
  counts = [
    np.bincount(labels[rows], minlength=case['classes']) for rows in clients
  ]
  case.check(f'{place}/class_counts', counts)


# ---- settings --------------------------------------------------------------


def training(case):
  rates = jnp.asarray(case['lr_per_round'], float)
  weighted = any(word in case['aggregation'] for word in ('n_i', 'train_n'))
  return local.Training(
    rounds=case['rounds'],
    epochs=case['local_epochs'],
    batch_size=case['batch_size'],
    learning_rate=lambda clock: rates[clock],
    momentum=case['momentum'],
    weight_decay=case['weight_decay'],
    shuffle=False,
    aggregation='examples' if weighted else 'uniform',
  )


def personalization(case):
  settings = case.settings.get('personalization')
  if settings is None:
    return personalize.Personalization()
  assert settings['weight_decay'] == 0
  return personalize.Personalization(
    epochs=(settings['epochs'],),
    part=settings['part'],
    learning_rate=settings['lr'],
    momentum=settings['momentum'],
    batch_size=settings['batch_size'],
    shuffle=False,
  )


def clients_data(case):
  inputs = case.load(case['common'])
  length = inputs['train_x'].shape[1]
  sizes = case.settings.get('train_sizes', case.settings.get('train_n'))
  train = stack(inputs['train_x'], inputs['train_y'], sizes or length)
  length = inputs['test_x'].shape[1]
  sizes = case.settings.get('test_sizes', length)
  return train, stack(inputs['test_x'], inputs['test_y'], sizes)


def stack(x, y, sizes):
  clients, length = y.shape
  return ClientData(
    jnp.asarray(x).reshape(-1, *x.shape[2:]),
    jnp.asarray(y, jnp.int32).ravel(),
    jnp.arange(clients * length).reshape(clients, length),
    jnp.broadcast_to(jnp.asarray(sizes), clients),
  )


def of(data, i):
  """Return the data of client i."""
  return data._replace(index=data.index[i], count=data.count[i])


def client_rows(data, i):
  rows = data.index[i, : int(data.count[i])]
  return data.x[rows], data.y[rows]


def start_params(case):
  start = case['start_params']
  return as_given(case.subtree(case.load(start['file']), start['prefix']))


def as_given(tree):
  return jax.tree.map(jnp.asarray, tree)


def as_is(x, key):
  return x


def upload_name(case, client, number):
  name = f'upload/client{client}/round{number}'
  if any(key.startswith(name) for key in case.arrays.files):
    return name
  return f'client{client}/round{number}'


def model_name(case):
  text = case['model'].lower()
  names = {'4conv': 'convnet4', '3conv': 'convnet3', 'mobilenet': 'mobilenet'}
  names |= {f'resnet{depth}': f'resnet{depth}' for depth in (10, 18, 50)}
  for word, name in names.items():
    if text.startswith(word):
      return name
  pytest.skip(f'{case["case"]}: the model {text} is not there yet')


def case_task(case, lowering='auto'):
  inputs = case.load(case['common'])
  shape = inputs['train_x'].shape[2:]
  classes = inputs[f'init/{case.head}/bias'].size
  sizes = {'image_shape': shape, 'num_classes': classes}
  if case['model'].startswith('narrow_simple_cnn'):
    widths = [inputs[f'init/{name}/bias'].size for name in BODY]
    return task_from_module(NarrowCNN(widths, classes), **sizes)
  return make_task(model_name(case), lowering=lowering, **sizes)


BODY = ('conv1', 'conv2', 'fc1', 'fc2')


class NarrowCNN(nn.Module):
  """The small network of the cases of the SuPerFed and FedConcat families."""

  widths: list[int]
  num_classes: int

  def setup(self):
    conv1, conv2, fc1, fc2 = self.widths
    self.conv1 = layers.Conv(conv1, kernel=(5, 5), padding=0, use_bias=True)
    self.conv2 = layers.Conv(conv2, kernel=(5, 5), padding=0, use_bias=True)
    self.fc1 = layers.Dense(fc1)
    self.fc2 = layers.Dense(fc2)
    self.head = layers.Dense(self.num_classes)

  def features(self, x, mask):
    x = layers.max_pool(nn.relu(self.conv1(x)))
    x = layers.max_pool(nn.relu(self.conv2(x)))
    x = nn.relu(self.fc1(x.reshape(len(x), -1)))
    return nn.relu(self.fc2(x))

  def __call__(self, x, mask):
    return self.head(self.features(x, mask))


PLAYERS = {
  'fedavg': play_fedavg,
  'fedavg on clients of different size': play_fedavg,
  'fedbabu': play_fedbabu,
  'fedbabu on clients of different size': play_fedbabu,
  'fine-tuning': play_finetuning,
  'accuracy without the head (nearest class template)': play_without_head,
  'forward and backward pass': play_forward,
  'forward and backward pass, 3 sgd steps': play_forward,
  'shard partition': play_partition,
}
