"""Rounds of five methods in NumPy, after the authors' code: golden cases few_*.

  python tests/support/partial_cohorts.py    # writes them anew

The narrow network of the other cases, channels last, with a backward pass of
its own, in float64. Cohorts are partial; client 1 has one class; the last
batches of clients 0 and 2 are of one example; client 2 comes in the third
round, after a cohort without most of its classes.
"""

import io
import itertools
import json
import lzma
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).parents[1] / 'golden_cases/data'
SIZES = 17, 12, 33, 7
COHORTS = [0, 1], [1, 3], [0, 2, 3], [2]
HELD = (0, 1, 2), (5,), (2, 3, 4, 6, 7), (5, 7, 8, 9)  # classes, in turn
LABELS = np.array([np.resize(own, 34) for own in HELD])
BATCH, EPOCHS, RATE = 16, 2, 0.05
HEAD, KERNEL, BIAS = 'fc3', 'fc3/kernel', 'fc3/bias'
SETTINGS = {  # of the cases, beside those that all have
  'fedpac': {'lam': 0.5, 'momentum': 0.5, 'weight_decay': 5e-4},
  'fedala': {'learning_rate': 1.0, 'percent': 50, 'threshold': 0.01},
  'feddbe': {'kappa': 3.0, 'mean_momentum': 0.6},
  'fedproto': {'lam': 0.1, 'protocol': 'paper', 'momentum': 0.5},
  'fedas': {'protocol': 'paper'},
}


# ---- The network -------------------------------------------------------------


def windows(x):
  return np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))


def classify(w, f):
  return f @ w[KERNEL] + w[BIAS]


def features(w, x):
  """Return them [B, 12], and what the backward pass needs."""
  kept = []
  for name in ('conv1', 'conv2'):
    kernel = w[f'{name}/kernel']
    z = np.einsum('bhwcij,ijco->bhwo', windows(x), kernel, optimize=True)
    z = np.maximum(z + w[f'{name}/bias'], 0)
    b, h, v, c = z.shape
    blocks = z.reshape(b, h // 2, 2, v // 2, 2, c)
    top = blocks.max(axis=(2, 4), keepdims=True)
    kept.append((name, x, (blocks == top) & (top > 0)))
    x = top[:, :, 0, :, 0]
  x = x.reshape(len(x), -1)
  for name in ('fc1', 'fc2'):
    out = np.maximum(x @ w[f'{name}/kernel'] + w[f'{name}/bias'], 0)
    kept.append((name, x, out > 0))
    x = out
  return x, kept


def backward(w, kept, d):
  """Return the gradients of the body from those of the features."""
  grads = {}
  for name, x, is_on in kept[:1:-1]:
    d = d * is_on
    grads |= {f'{name}/kernel': x.T @ d, f'{name}/bias': d.sum(0)}
    d = d @ w[f'{name}/kernel'].T
  for name, x, is_top in kept[1::-1]:
    b, h, _, v, _, c = is_top.shape
    d = (is_top * d.reshape(b, h, 1, v, 1, c)).reshape(b, 2 * h, 2 * v, c)
    kernel = np.einsum('bhwcij,bhwo->ijco', windows(x), d, optimize=True)
    grads |= {f'{name}/kernel': kernel, f'{name}/bias': d.sum((0, 1, 2))}
    back = np.zeros_like(x)
    for i, j in itertools.product(range(5), range(5)):
      part = d @ w[f'{name}/kernel'][i, j].T
      back[:, i : i + 2 * h, j : j + 2 * v] += part
    d = back
  return grads


def objective(w, x, y, pull=None, shift=0.0):
  """Return cross-entropy + the pull, gradients, and that of the shift.

  pull: features, labels -> its value, and its gradient for the features.
  """
  f, kept = features(w, x)
  logits = classify(w, f + shift)
  p = np.exp(logits - logits.max(1, keepdims=True))
  p /= p.sum(1, keepdims=True)
  loss = -np.log(p[range(len(y)), y]).mean()
  d = (p - np.eye(10)[y]) / len(y)
  d_f = d @ w[KERNEL].T
  value, more = pull(f, y) if pull else (0.0, 0.0)
  grads = {KERNEL: (f + shift).T @ d, BIAS: d.sum(0)}
  return loss + value, grads | backward(w, kept, d_f + more), d_f.sum(0)


def batches(x, y, size=BATCH):
  ends = range(0, len(y), size)
  return [(x[at : at + size], y[at : at + size]) for at in ends]


def sgd(w, data, loss_of, epochs=EPOCHS, rate=RATE, beta=0.0, decay=0.0, of=''):
  """Return w after SGD of its 'head', its 'body', or all; and the losses."""
  w, buffers, losses = dict(w), {}, []
  for x, y in batches(*data) * epochs:
    loss, grads, *_ = loss_of(w, x, y)
    losses.append(loss)
    for name in part(w, of):
      grad = grads[name] + decay * w[name]
      buffers[name] = beta * buffers.get(name, 0.0) + grad
      w[name] = w[name] - rate * buffers[name]
  return w, losses


def part(w, of):
  is_asked = {'head': {True}, 'body': {False}}.get(of, {True, False})
  return {k: v for k, v in w.items() if k.startswith(HEAD) in is_asked}


def mean_of(models, weights):
  weights = np.array(weights) / np.sum(weights)
  return {
    name: sum(a * w[name] for a, w in zip(weights, models, strict=True))
    for name in models[0]
  }


def class_means(w, x, y):
  f, _ = features(w, x)
  return {k: f[y == k].mean(0) for k in np.unique(y)}


def table(means):
  """Return them as [10, 12], with zeros for other classes."""
  return np.array([means.get(k, np.zeros(12)) for k in range(10)])


# ---- The methods: (initial model, data of the clients, save) -> models for the
# tests, each with its shift of the features. `save` keeps arrays for the case.


def fedpac(start, clients, save, lam, momentum, weight_decay):
  body, heads, means = part(start, 'body'), [part(start, 'head')] * 4, {}
  how = {'beta': momentum, 'decay': weight_decay}
  for r, cohort in enumerate(COHORTS, 1):
    models, found, shares, variances = [], [], [], []
    for i in cohort:
      (x, y), w = clients[i], body | heads[i]
      (f, _), before = features(w, x), class_means(w, x, y)
      m = table({k: np.mean(y == k) * mean for k, mean in before.items()})
      shares.append(m)
      variances.append((np.sum(f**2) / len(y) - np.sum(m**2)) / len(y))

      def pull(f, y, before=before, means=means):
        apart = f - [means.get(k, before[k]) for k in y]
        return lam * np.mean(apart**2), lam * 2 * apart / apart.size

      def pulled(w, x, y, pull=pull if r > 1 else None):
        return objective(w, x, y, pull)

      w, _ = sgd(w, clients[i], objective, 1, 0.1, of='head', **how)
      w, losses = sgd(w, clients[i], pulled, of='body', **how)
      save({'step_loss/': losses, '': w}, r, i)
      models.append(w)
      found.append(class_means(w, x, y))
    body = part(mean_of(models, [SIZES[i] for i in cohort]), 'body')
    means = {}
    for k in {k for own in found for k in own}:
      counts = [np.sum(clients[i][1] == k) for i in cohort]
      own = [one.get(k, np.zeros(12)) for one in found]
      means[k] = np.average(own, axis=0, weights=counts)
    save({'global': body, 'means': table(means)}, r)
    for i, own in zip(cohort, shares, strict=True):
      apart = [(own - m).ravel() for m in shares]
      gram = np.array([[a @ b for b in apart] for a in apart])
      x = simplex_minimum(np.diag(variances) + gram)
      heads[i] = part(mean_of(models, np.where(x > 1e-3, x, 0)), 'head')
      save({'head/': heads[i]}, r, i)
  return 'initial', [(body | head, 0.0) for head in heads]


def simplex_minimum(matrix):
  """Return argmin x' A x on the simplex: the best of all faces' minima."""
  found = []
  for face in itertools.product([False, True], repeat=len(matrix)):
    on, x = np.flatnonzero(face), np.zeros(len(matrix))
    if on.size:
      x[on] = np.linalg.solve(matrix[np.ix_(on, on)], np.ones(on.size))
      x /= x.sum()
      found += [(x @ matrix @ x, tuple(x))] if (x >= 0).all() else []
  return np.array(min(found)[1])


def fedala(start, clients, save, learning_rate, percent, threshold):
  server, models, mixtures = start, [start] * 4, [None] * 4

  def mix(i):
    own, weights, losses = part(models[i], 'head'), mixtures[i], []
    weights = weights or {k: np.ones_like(leaf) for k, leaf in own.items()}
    few = int(percent / 100 * SIZES[i])

    def mixed():
      ways = {k: server[k] - own[k] for k in own}
      return server | {k: own[k] + ways[k] * weights[k] for k in own}, ways

    while True:
      for x, y in batches(*(rows[:few] for rows in clients[i])):
        w, ways = mixed()
        loss, grads, _ = objective(w, x, y)
        for k in own:
          step = learning_rate * grads[k] * ways[k]
          weights = weights | {k: np.clip(weights[k] - step, 0, 1)}
      losses.append(loss)
      is_calm = len(losses) > 10 and np.std(losses[-10:]) < threshold
      if mixtures[i] or is_calm:
        assert len(losses) < 100, 'the bound of the package'
        return weights, mixed()[0]

  for r, cohort in enumerate(COHORTS, 1):
    for i in cohort:
      if r > 1:
        mixtures[i], models[i] = mix(i)
        save({'mixture/': mixtures[i]}, r, i)
      models[i], losses = sgd(models[i], clients[i], objective)
      save({'step_loss/': losses, '': models[i]}, r, i)
    own = [models[i] for i in cohort]
    server = mean_of(own, [SIZES[i] for i in cohort])
    save({'global': server}, r)
  return 'personalized', [(mix(i)[1], 0.0) for i in range(4)]


def feddbe(start, clients, save, kappa, mean_momentum):
  mu, mean, shifts = mean_momentum, None, [np.zeros(12)] * 4
  server = start

  def train(i):
    w, shift, running, losses = server, shifts[i], np.zeros(12), []

    def pull(f, y):
      """Move r_i, too."""
      nonlocal running
      running = (1 - mu) * running + mu * f.mean(0)
      if mean is None:
        return 0.0, 0.0
      apart = running - mean
      return kappa * np.mean(apart**2) / 2, kappa * apart / 12 * mu / len(f)

    for x, y in batches(*clients[i]) * EPOCHS:
      loss, grads, of_shift = objective(w, x, y, pull, shift)
      w = {k: w[k] - RATE * grads[k] for k in w}
      shift = shift if mean is None else shift - RATE * of_shift
      losses.append(loss)
    return w, shift, running, losses

  mean = np.average([train(i)[2] for i in range(4)], axis=0, weights=SIZES)
  save({'mean': mean})
  for r, cohort in enumerate(COHORTS, 1):
    models = []
    for i in cohort:
      w, shifts[i], running, losses = train(i)
      save({'': w, 'shift/': shifts[i], 'running/': running}, r, i)
      save({'step_loss/': losses}, r, i)
      models.append(w)
    server = mean_of(models, [SIZES[i] for i in cohort])
    save({'global': server}, r)
  return 'personal', [(server, shift) for shift in shifts]


def fedproto(start, clients, save, lam, protocol, momentum):
  models, means = [start] * 4, {}

  def pull(f, y):
    apart = f - [means.get(k, f[at]) for at, k in enumerate(y)]
    return lam * np.sum(apart**2) / len(y), lam * 2 * apart / len(y)

  def pulled(w, x, y):
    return objective(w, x, y, pull)

  for r, cohort in enumerate(COHORTS, 1):
    sums, counts = {}, {}
    for i in cohort:
      models[i], losses = sgd(models[i], clients[i], pulled, beta=momentum)
      own = class_means(models[i], *clients[i])
      save({'step_loss/': losses, '': models[i], 'up/': table(own)}, r, i)
      for k, mean in own.items():
        n = np.sum(clients[i][1] == k)
        sums[k], counts[k] = sums.get(k, 0.0) + n * mean, counts.get(k, 0) + n
    means |= {k: sums[k] / counts[k] for k in sums}
    save({'means': table(means)}, r)
  return 'personal', [(w, 0.0) for w in models]


def fedas(start, clients, save, protocol):
  body, models = part(start, 'body'), [start] * 4
  for r, cohort in enumerate(COHORTS, 1):
    traces = []
    for i in cohort:
      means = class_means(models[i], *clients[i])

      def alignment(w, x, y, means=means):
        f, kept = features(w, x)
        d, loss = np.zeros_like(f), 0.0
        for k in np.unique(y):
          apart = f[y == k] - means[k]
          loss += np.mean(apart**2)
          d[y == k] = 2 * apart / apart.size
        return loss, backward(w, kept, d)

      w = models[i] | body
      w, aligned = sgd(w, clients[i], alignment, 1, 0.01, of='body')
      models[i], losses = sgd(w, clients[i], objective)
      each = batches(*clients[i], size=1)
      grads = [objective(models[i], *one)[1] for one in each]
      squares = [sum(np.sum(g**2) for g in one.values()) for one in grads]
      traces.append(np.mean(squares))
      save({'': models[i], 'trace/': traces[-1]}, r, i)
      save({'align_loss/': aligned, 'step_loss/': losses}, r, i)
    body = part(mean_of([models[i] for i in cohort], traces), 'body')
    save({'global': body}, r)
  return 'personal', [(w, 0.0) for w in models]


# ---- The files ---------------------------------------------------------------


def write(method, common):
  """Write the case of a method; of large arrays every 19th element."""
  name, arrays = f'few_{method.__name__}', {'train_y': LABELS}

  def save(found, r=None, i=None):
    place = ('' if i is None else f'client{i}') + f'/round{r}' * bool(r)
    for key, value in found.items():
      leaves = value if isinstance(value, dict) else {'': value}
      for path, leaf in leaves.items():
        leaf, at = np.asarray(leaf), f'{key}{place}/{path}'.rstrip('/')
        is_large = leaf.size > 120
        stored = leaf.ravel()[::19] if is_large else leaf
        arrays[at + '@every19' * is_large] = stored

  own, x = SETTINGS[method.__name__], common['train_x']
  clients = [(x[i, :n], LABELS[i, :n]) for i, n in enumerate(SIZES)]
  start = {k[5:]: leaf for k, leaf in common.items() if k.startswith('init/')}
  view, models = method(start, clients, save, **own)
  for i, (w, shift) in enumerate(models):
    f, _ = features(w, common['test_x'][i])
    arrays[f'{view}/client{i}/logits'] = classify(w, f + shift)
  settings = {
    'case': name,
    'source': 'independent: tests/support/partial_cohorts.py, in NumPy',
    'algorithm': method.__name__,
    'model': 'narrow_simple_cnn (see ../superfed_fedconcat/README.md)',
    'dtype': 'float64',
    'common': '../superfed_fedconcat/common.npz',
    'clients': 4,
    'train_n': SIZES,
    'local_epochs': EPOCHS,
    'batch_size': BATCH,
    'lr_per_round': [RATE] * len(COHORTS),
    'rounds': len(COHORTS),
    'participants': COHORTS,
    'aggregation': 'train_n: n_i / sum over the cohort',
    'data_order': 'sequential, short last batch kept',
    'arrays': {'train_y': 'labels of the images', '..': f'as {name[4:]}.json'},
    'tolerance': {'rtol': 1e-9, 'atol': 1e-10},
    **{'momentum': 0.0, 'weight_decay': 0.0, **own},
  }
  content = io.BytesIO()
  np.savez(content, **arrays)
  path, packed = DATA / f'wanted/{name}.json', lzma.compress(content.getvalue())
  path.write_text(json.dumps(settings, indent=1) + '\n')
  path.with_suffix('.npz.xz').write_bytes(packed)


if __name__ == '__main__':
  with lzma.open(DATA / 'superfed_fedconcat/common.npz.xz') as file:
    inputs = dict(np.load(io.BytesIO(file.read())))
  for one in (fedpac, fedala, feddbe, fedproto, fedas):
    write(one, inputs)
