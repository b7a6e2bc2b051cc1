"""How unlike the clients of a set are: what a model of another one is worth.

  1 - own / borrowed     own: error on a client's tests of a model of its rows
                         borrowed: there, of a model of another client's rows

Each is a mean, over clients and over ordered pairs of them; error is the share
of wrong answers, of numbers RMSE. 0: any client's model is as good; 1: only the
own one is of use. A model is a random forest, fitted to a client's training
rows as methods have them, so the number holds for tables, and no training that
is compared is in it. Labels alone would not do: domains may have the same
ones. Nor would inputs: nearly each row tells which hospital it is of.
"""

from collections.abc import Callable, Iterator

import numpy as np

from fedjax_pfl.compare.form import Form, Unit
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.training.build_data import build_data

FOREST = {'n_estimators': 100, 'random_state': 0}
HEADER = 'form', 'partition', 'clients', 'own', 'borrowed', 'unlike'


def lines_of(form: Form, log: Callable[[str], None]) -> Iterator[dict]:
  """Yield a line for each partition, divided as with the first seed."""
  for name in form.partitions:
    unit = Unit(form, name, 'fedavg')
    settings = unit.settings(unit.candidates[0], form.seeds[0])
    splits = build_data(settings, log).splits
    errors = errors_of(splits['train'], splits['test'])  # [K, K]
    clients = len(errors)
    of_own = np.trace(errors) / clients
    borrowed = (errors.sum() - np.trace(errors)) / (clients * (clients - 1))
    numbers = (f'{x:.4f}' for x in (of_own, borrowed, 1 - of_own / borrowed))
    values = form.name, name, clients, *numbers
    log(' '.join(map(str, values)))
    yield dict(zip(HEADER, values, strict=True))


def errors_of(train: ClientData, test: ClientData) -> np.ndarray:
  """Return [K, K]: of the model of each client on the tests of each."""
  from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

  is_class = np.asarray(train.y).ndim == 1
  forest = RandomForestClassifier if is_class else RandomForestRegressor
  tests, errors = rows_of(test), []
  inputs = np.concatenate([x for x, _ in tests])
  labels = np.concatenate([y for _, y in tests])
  ends = np.cumsum([len(y) for _, y in tests])[:-1]
  for x, y in rows_of(train):
    gaps = forest(**FOREST).fit(x, y).predict(inputs) - labels
    wrong = np.split((gaps != 0) if is_class else gaps**2, ends)
    means = np.array([*map(np.mean, wrong)])
    errors.append(means if is_class else np.sqrt(means))
  return np.array(errors)


def rows_of(data: ClientData) -> list[tuple[np.ndarray, np.ndarray]]:
  """Return inputs [n, D] and labels [n] of each client."""
  x, y = np.asarray(data.x), np.asarray(data.y)
  x, y = x.reshape(len(x), -1), y.reshape(len(x))
  pairs = zip(np.asarray(data.index), np.asarray(data.count), strict=True)
  return [(x[index[:count]], y[index[:count]]) for index, count in pairs]
