"""The smallest run that has all that a run has, and how one has to end.

It is trained in this process with programs that are compiled once: a repetition
takes a tenth of a second, so that hundreds can be tried.
"""

import contextlib
import functools
import io
from pathlib import Path

from small_runs import make_experiment, numbers_of

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program

PARTS = (': got ', ', expected ')
last_sentence: list[str] = []


@functools.cache
def experiment(seed=0):
  return make_experiment(
    **{'seed': seed, 'rounds': 3, 'num_clients': 5, 'client_fraction': 0.4},
    **{'max_train_examples': 100, 'batch_size': 16, 'views': ('initial',)},
    **{'log_every': 1, 'eval_every': 2, 'checkpoint_every': 1},
    save_clients=(0,),
    eval_global_model=True,  # then result.json depends on earlier metrics
  )


@functools.cache
def program():
  """Return the compiled functions of the run, wherever it is run."""
  return Program(experiment())


def play(folder: Path) -> str:
  """Give the command of the run once; return its output."""
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    train(experiment(), folder, program())
  return output.getvalue()


def how_it_ends(folder: Path, want: dict) -> str:
  """Return 'same bits', 'a sentence', or what is wrong."""
  got: dict = {}
  reading = lambda: got.update(numbers_of(folder))  # refuses changed metrics
  if end := refusal(lambda: play(folder)) or refusal(reading):
    return end
  other = [name for name in want if want[name] not in (None, got[name])]
  left = [str(path) for path in folder.rglob('*.tmp')]
  return f'other {other}, left {left}' if other or left else 'same bits'


def refusal(call) -> str:
  """Return '' if it is not refused, 'a sentence', or what is wrong."""
  try:
    call()
  except BadInput as error:
    message = str(error)
    last_sentence.append(message)
    is_whole = all(part in message for part in PARTS) and message[-1] == '.'
    return 'a sentence' if is_whole and len(message) < 4000 else message[:300]
  except Exception as error:
    return f'{type(error).__name__}: {error}'
  return ''
