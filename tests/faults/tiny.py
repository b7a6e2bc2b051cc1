"""The smallest run that has all that a run has, and how one has to end.

It is trained in this process, and its compiled programs are kept: a repetition
takes a tenth of a second, so that hundreds can be tried.
"""

import contextlib
import functools
import io
from pathlib import Path

from small_runs import make_experiment, numbers_of

from faults.watch import wrong_sentence
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program

last_sentence: list[str] = []


@functools.cache
def experiment(seed=0):
  return make_experiment(
    seed=seed,
    num_clients=5,
    max_train_examples=100,
    client_fraction=0.4,
    rounds=3,
    batch_size=16,
    log_every=1,
    eval_every=2,
    checkpoint_every=1,
    views=('initial',),
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
  try:
    play(folder)
  except BadInput as error:
    last_sentence.append(str(error))
    return wrong_sentence(str(error)) or 'a sentence'
  except Exception as error:
    return f'{type(error).__name__}: {error}'
  got = numbers_of(folder)
  other = [name for name in want if want[name] not in (None, got[name])]
  left = [str(path) for path in folder.rglob('*.tmp')]
  return f'other {other}, left {left}' if other or left else 'same bits'
