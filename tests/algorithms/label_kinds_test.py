"""Each method with labels that are no classes: it trains, or one sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALGORITHMS, refused

from configs.methods import METHODS
from fedjax_pfl.algorithms import load
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.training.outline import outline

LABELS = {'squared': 'a,b', 'logistic': 'd,e', 'cox': 'a,d'}
VIEWS = 'views', 'eval_views'
COLUMNS = 'x', 'z', 'a', 'b', 'd', 'e', 'site'


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  rng = np.random.default_rng(0)
  rows = [','.join(COLUMNS)]
  for row in range(24):
    numbers = rng.random(4).round(3).tolist() + rng.integers(0, 2, 2).tolist()
    rows.append(','.join(map(str, [*numbers, f'site{row % 3}'])))
  path = tmp_path_factory.mktemp('tables') / 'a.csv'
  path.write_text('\n'.join(rows))
  return str(path)


def config(file, loss='squared', **changes):
  return {
    **{'dataset': 'table', 'data_dir': file, 'client': 'site', 'loss': loss},
    **{'label': LABELS[loss], 'model': 'mlp', 'partition': 'natural'},
    **{'num_clients': 0, 'rounds': 2, 'views': ('initial',)},
    **changes,
  }


@pytest.mark.parametrize('at, name', [*enumerate(ALGORITHMS)])
def test_a_method_trains_or_refuses(file, at, name):
  """Kinds take turns over the methods; a round of each stage is traced."""
  loss = [*LABELS][at % 3]
  views = {field: METHODS.get(name, {}).get(field) for field in VIEWS}
  views = {field: names for field, names in views.items() if names}
  made = config(file, loss, algorithm=name, **views)
  if getattr(load(name), 'NEEDS_CLASSES', False):
    words = refused(outline, made)
    assert 'asks for no class' in words and name in words
    return
  if name == 'fedbn':
    return  # a model without normalisation
  known = outline(made)
  for stage, *states in stage_shapes(known.stages, known.clients):
    round_fn = make_round(stage.algorithm, clients_per_chunk=1, mesh=None)
    data = jax.eval_shape(stage.prepare_data, states[0], known.clients)
    key = jax.random.key(0)
    *after, _ = jax.eval_shape(round_fn, *states, jnp.zeros(1, int), data, key)
    assert jax.tree.structure(after) == jax.tree.structure([*states])
  assert not [view for view in known.views if view.startswith('templates')]


def test_what_else_is_refused(file):
  words = refused(outline, config(file, attack='label_flip', attackers=0.4))
  assert 'an attack on uploads' in words
  words = refused(outline, config(file, scoring='batches'))
  assert 'exact for labels that are numbers' in words
  words = refused(outline, config(file, metrics=('auroc',)))
  assert 'labels that are numbers' in words and 'rmse' in words
  words = refused(outline, config(file, model='linear', algorithm='fedper'))
  assert 'whose clients keep their head' in words
  words = refused(outline, {'dataset': 'digits', 'loss': 'cox', 'model': 'mlp'})
  assert 'whose labels are classes' in words
