"""The measures of a view, one entry each: a new one is one entry more.

An entry says how its number is computed and how it is shown: of the predictions
for a client (`of_client`, the mean over clients is reported), or of the
accuracies of all clients (`of_clients`). Both None: by `summarise` itself.
Results, the table of a run, the page and, of a `compared` one, the CSV,
Markdown, LaTeX and page of a comparison have it from here. A metric of the
user's own is an entry that is made at run time.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.example_losses import labels_of
from fedjax_pfl.core.types import Array
from fedjax_pfl.evaluation import label_metrics as of

MIN_TESTS = 50  # of each client, for a worst tenth that is not noise
MAX, MIN = 'max', 'min'
LEFT_OUT = 'left_out/'  # begins the names of what a robust server left out


class Measure(NamedTuple):
  """A number of a view."""

  name: str  # in result.json
  head: str  # of a column
  unit: str = ''
  digits: int | None = 2  # behind the point; None: four that count
  better: str = ''  # MAX or MIN; '': neither is
  help: str = ''
  # (logits [N, Y], labels [N], mask [N]) -> a number of the client.
  of_client: Callable[[Array, Array, Array], Array] | None = None
  # (numbers [K] of clients who have one, tests [K]) -> a number. They are
  # accuracies in percent; of a measure where lower is better, with a minus.
  of_clients: Callable[[np.ndarray, np.ndarray], float] | None = None
  compared: bool = False  # comparisons and summaries have a column of it
  before: bool = False  # and comparisons one before personalisation
  asked: bool = False  # only where the setting `metrics` names it

  @property
  def in_summary(self) -> str:
    """Return the name of its mean over clients in a summary."""
    return 'mean' if self.name == 'accuracy' else self.name

  @property
  def sign(self) -> int:
    """Return 1 where higher is better, or -1."""
    return -1 if self.better == MIN else 1

  def over_seeds(self, means: Sequence[float]) -> str:
    """Return the mean ± the deviation over seeds; of one seed the mean."""
    words = self.text(float(np.mean(means)))
    if len(means) < 2:
      return words
    spread = float(np.std(means, ddof=1))
    # Two digits that count, where those behind the point are not known.
    return f'{words} ± {self.text(spread) if self.digits else f"{spread:.2g}"}'

  def label(self, words: str) -> str:
    """Return the words with the unit: 'accuracy, %'."""
    return f'{words}, {self.unit}' if self.unit else words

  @property
  def direction(self) -> str:
    return f'{"higher" if self.sign > 0 else "lower"} is better'

  @property
  def column(self) -> str:
    """Return the end of its columns in a CSV: 'worst_tenth'."""
    return self.head.lower().replace(' ', '_')

  def text(self, value: float | None) -> str:
    """Return a value as it is printed; '-' without one."""
    if value is None or math.isnan(value):
      return '-'
    form = '.4g' if self.digits is None else f',.{self.digits}f'
    return format(value, form)

  def short(self, value: float | None) -> str:
    """Return the same for a narrow table: one digit of a percentage."""
    digits = 1 if self.unit == '%' else self.digits
    return self._replace(digits=digits).text(value)

  def said(self, value: float) -> str:
    """Return the same with its unit, for a sentence."""
    return self.short(value) + f'\u00a0{self.unit}' * bool(self.unit)

  def signed(self, value: float, short: bool = False) -> str:
    """Return a difference with its sign: '+4.12', or '+4.1'."""
    text = (self.short if short else self.text)(abs(value))
    return f'{"-" if value < 0 and text.strip("0.") else "+"}{text}'

  def gap(self, value: float) -> str:
    """Return the size of a difference: '4.1 points'."""
    return f'{self.short(abs(value))} {self.unit_of_gap}'.rstrip()

  @property
  def unit_of_gap(self) -> str:
    return 'points' if self.unit == '%' else self.unit


def worst_decile(accuracy: np.ndarray, count: Any) -> float:
  """Return the mean of the lowest ceil(K/10) of K accuracies, NaN left out.

  NaN if the smallest `count` of tests is below MIN_TESTS: then chance makes the
  lowest ones low.

  >>> worst_decile(np.array([70.0, 80.0]), 50), worst_decile(np.ones(2), 49)
  (70.0, nan)
  """
  used = accuracy[~np.isnan(accuracy)]
  if not used.size or np.min(count) < MIN_TESTS:
    return math.nan
  return float(np.sort(used)[: math.ceil(used.size / 10)].mean())


def lowest_client(accuracy: np.ndarray, count: Any = None) -> float:
  """Return the lowest accuracy of the clients [K].

  >>> lowest_client(np.array([80.0, np.nan, 62.5]))
  62.5
  """
  used = accuracy[~np.isnan(accuracy)]
  return float(used.min()) if used.size else math.nan


def negative_transfer(accuracy: np.ndarray, alone: np.ndarray) -> float:
  """Return the share of clients, in percent, that are worse than alone.

    100 |{k : a_k < b_k}| / |{k}|,  b of local_only on the same partition

  Both are of the same seeds and clients. Equal accuracies are no loss; NaN
  where no client has both.

  >>> negative_transfer(np.array([90.0, 50.0]), np.array([80.0, 70.0]))
  50.0
  """
  assert accuracy.shape == alone.shape, (accuracy.shape, alone.shape)
  is_known = ~(np.isnan(accuracy) | np.isnan(alone))
  if not is_known.any():
    return np.nan
  return 100 * float(np.mean(accuracy[is_known] < alone[is_known]))


# Of each client; its mean is an entry below.
ACCURACY = Measure('accuracy', 'Accuracy', '%', 2, MAX, 'right answers')
OF_LABELS = (
  (of.auroc, 'AUROC', MAX, 'area under the curve of ROC'),
  (of.auprc, 'AUPRC', MAX, 'mean precision at the positives'),
  (of.macro_f1, 'Macro F1', MAX, 'mean of F1 over classes'),
  (of.balanced_accuracy, 'Balanced accuracy', MAX, 'mean over classes'),
  (of.brier, 'Brier', MIN, 'mean squared error of probabilities'),
  (of.rmse, 'RMSE', MIN, 'root of the mean squared error'),
  (of.mae, 'MAE', MIN, 'mean absolute error'),
  (of.r2, 'R2', MAX, '1 - squared error / variance'),
  (of.c_index, 'C-index', MAX, 'share of pairs in the order of their events'),
)
MEASURES = [
  Measure('mean', 'Mean', '%', 2, MAX, 'unweighted over clients'),
  Measure('std', 'Std', '%', 2, '', 'deviation over clients (ddof 0)'),
  Measure(
    *('worst_decile', 'Worst tenth', '%', 2, MAX),
    'mean of the tenth of the clients who do worst',
    of_clients=worst_decile,
    compared=True,
  ),
  Measure(
    *('lowest_client', 'Lowest client', '%', 2, MAX),
    'the number of the client who does worst',
    of_clients=lowest_client,
    compared=True,
  ),
  Measure('pooled', 'Pooled', '%', 2, MAX, 'of all test examples'),
  Measure('top5', 'Top 5', '%', 2, MAX, 'the class is among the five first'),
  Measure('loss', 'Loss', '', 2, MIN, 'mean over clients'),
  Measure('bits_per_token', 'Bits', 'per token', 2, MIN, 'loss / ln 2'),
  Measure('perplexity', 'Perplexity', 'per token', 2, MIN, 'exp(loss)'),
  Measure('ece', 'ECE', '', 3, MIN, 'expected calibration error'),
  Measure('mce', 'MCE', '', 3, MIN, 'maximum calibration error'),
  Measure('num_clients', 'Clients', '', 0, '', 'in these numbers'),
  # Under an attack, and of a server with a robust rule.
  Measure(
    *('backdoor', 'Backdoor', '%', 2, MIN),
    'tests of other classes that its trigger moves to the target',
    compared=True,
    before=True,
  ),
  Measure('left_out/share', 'Left out', '', 2, '', 'share of uploads'),
  Measure(
    *('left_out/precision', 'Precision', '', 2, MAX),
    'share of attackers among clients left out',
    compared=True,
  ),
  Measure(
    *('left_out/recall', 'Recall', '', 2, MAX),
    'share of clients left out among attackers',
    compared=True,
  ),
  *(
    Measure(
      *(
        function.__name__,
        head,
        '',
        None if function in (of.rmse, of.mae) else 3,
      ),
      *(better, why, function),
      asked=True,
    )
    for function, head, better, why in OF_LABELS
  ),
]


def main_of(loss: str) -> Measure:
  """Return the measure that tables of a run with this loss are of."""
  return measure_of(of.MAIN[labels_of(loss)])


def measure_of(name: str, better: str = '') -> Measure:
  """Return the entry of a measure; of a metric of the user's own, a new one."""
  known = {one.name: one for one in (ACCURACY, *MEASURES)}
  return known.get(name) or Measure(name, name, digits=None, better=better)


def over_clients(
  accuracy: np.ndarray, count: np.ndarray, sign: int = 1
) -> dict[str, float]:
  """Return what is computed of accuracies [K]; NaN is a client without one.

  `count` [K] are their tests. With sign -1, of a measure where lower is better,
  the largest numbers are the lowest.
  """
  used = ~np.isnan(accuracy)
  values, tests = sign * accuracy[used], np.asarray(count)[used]
  return {
    one.name: sign * float(one.of_clients(values, tests))
    for one in MEASURES
    if one.of_clients
  }
