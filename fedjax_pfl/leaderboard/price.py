"""What a comparison is, in words, and what it costs."""

import numpy as np

from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.leaderboard.form import (
  Form,
  count_trainings,
  settings_of,
  views_of,
)
from fedjax_pfl.results.page.styles import display_name
from fedjax_pfl.results.runs.run import are_same_clients
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.tables.text_table import align, duration
from fedjax_pfl.runs.identity import provenance
from fedjax_pfl.training.blank import load_blank
from fedjax_pfl.training.outline import outline

SPEED = 10_000  # images a second: small models on two cores


def about(form: Form) -> About:
  """Return what the form compares, and by which protocol."""
  base, made = form.base, provenance()
  partitions = form.partitions.values()

  def value(name):
    found = [(base | {**one}).get(name) for one in partitions]
    return ', '.join(dict.fromkeys(map(str, found)))

  names = ['model', 'num_clients', 'client_fraction', 'rounds', 'local_epochs']
  if base.get('rounds') is None:
    names[3] = 'total_epochs'
  facts = [(name.replace('_', ' '), value(name)) for name in names]
  if models := base.get('models'):  # of groups of clients
    facts[0] = 'models', ', '.join(map(without_digest, models))
  facts += [
    ('seeds', ', '.join(map(str, form.seeds))),
    ('trainings', sum(count_trainings(form).values())),
  ]
  compared = form.methods, tuple(form.partitions), form.baselines, form.seeds
  words = tuple(facts), tuple(_protocol(form))
  program = made['version'], made['commit'] or ''
  same_clients = tuple(
    name
    for name, fields in form.partitions.items()
    if are_same_clients(base | {**fields})
  )
  named = form.name, value('dataset')
  return About(*named, *compared, *words, *program, same_clients)


def _protocol(form: Form) -> list[str]:
  base, first = form.base, form.candidates[form.methods[0]]
  seeds = ', '.join(map(str, form.tuning_seeds))
  apart = {*form.tuning_seeds}.isdisjoint(form.seeds)
  tried = '; '.join(
    f'{name} {", ".join(dict.fromkeys(str(one[name]) for one in first))}'
    for name in first[0]
  )
  epochs = ' or '.join(map(str, base.get('finetune', {}).get('epochs', ())))
  return [
    'Every method has the same rounds, cohorts and local epochs'
    f'{_other_rounds(form)}. One with two models trains each, so at equal '
    'rounds gradients are not equal: the table has them.',
    f'Every method is tuned with the same number of trainings: {len(first)} '
    f'settings with seed {seeds}, {"not" * apart}{"also" * (not apart)} in the '
    f'numbers. Of {display_name(form.methods[0])}: {tried}; the learning rate '
    'is that of fine-tuning, too.',
    f'{base["validation_fraction"]:.0%} of the training examples of each '
    f'client are kept for the choice of the setting, of {epochs} epochs of '
    'fine-tuning and of mixtures. No test reaches a choice, and nothing is '
    'trained again with these examples. All are compared after '
    'personalisation: FedAvg after the epochs that validation chose.',
  ]


def _other_rounds(form: Form) -> str:
  """Return ', but for these rounds: ..' of methods with others, or ''."""
  found: dict[str, list[str]] = {}
  for partition in form.partitions:
    own = form.own.get(partition, {})
    words = ', '.join(
      f'{display_name(method)} {own[method]["rounds"]}'
      for method in form.methods
      if 'rounds' in own.get(method, {})
    )
    if words:
      found.setdefault(words, []).append(partition)
  parts = [f'{words} ({", ".join(where)})' for words, where in found.items()]
  return f', but for these rounds: {"; ".join(parts)}' if parts else ''


def price(form: Form) -> str:
  """Return what is trained, in images of local training, as text.

  A training is counted as one of the first baseline.
  """
  name, total = form.baselines[0], 0.0
  rows = [('', 'trainings', 'images of one', 'images')]
  for partition, number in count_trainings(form).items():
    # Of its own views: a baseline may have no model before personalisation.
    views = views_of(form, name, partition)
    candidate, seed = form.candidates[name][0], form.seeds[0]
    which = form, name, partition, candidate, seed, views
    experiment = load_blank(outline(settings_of(*which)))
    settings, count = experiment.settings, experiment.train.count
    share = settings.training.client_fraction
    cohort = cohort_size(settings.data.num_clients, share)
    passes = cohort * settings.train.epochs * experiment.rounds
    images = passes * float(np.mean(count))
    total += number * images
    words = (f'{x:,.0f}' for x in (number, images, number * images))
    rows.append((partition, *words))
  return (
    f'{align(rows)}\n{len(form.methods)} methods, each tuned and trained in '
    f'{form.trainings} trainings: {total / 1e6:,.1f} M images of local '
    f'training, {duration(total / SPEED)} at {SPEED:,} images a second (small '
    f'models on two cores), were all methods like {display_name(name)}. '
    'Compilation, evaluations and fine-tuning come on top.'
  )
