"""What a comparison is, in words."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.compare.form import RATE, Form
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.results.runs.run import are_same_clients
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.runs.identity import provenance


def about(form: Form) -> About:
  """Return what the form compares, and by which protocol."""
  base, made, units = form.base, provenance(), [*form.units()]
  partitions = {
    name: base | {**fields} for name, fields in form.partitions.items()
  }
  settings = [x.settings(x.candidates[0], form.seeds[0]) for x in units]
  clients = [  # 0 in a form: those of the data
    each.data.num_clients
    for unit, each in zip(units, settings, strict=True)
    if unit.method == form.methods[0]
  ]

  def joined(values):
    return ', '.join(dict.fromkeys(map(str, values)))

  def fact(name):
    values = (fields.get(name) for fields in partitions.values())
    return name.replace('_', ' '), joined(values)

  model = fact('model')
  if models := base.get('models'):  # of groups of clients
    model = 'models', ', '.join(map(without_digest, models))
  rounds = 'total_epochs' if base.get('rounds') is None else 'rounds'
  facts = (
    model,
    ('num clients', joined(clients)),
    *map(fact, ('client_fraction', rounds, 'local_epochs')),
    ('seeds', ', '.join(map(str, form.seeds))),
    # The same training in two partitions, as of a method with all data, is one.
    ('trainings', form.trainings * len({*map(repr, settings)})),
  )
  return About(
    name=form.name,
    dataset=joined(map(name_of_data, partitions.values())),
    methods=form.methods,
    partitions=tuple(partitions),
    baselines=form.baselines,
    seeds=form.seeds,
    facts=facts,
    protocol=tuple(_protocol(form)),
    version=made['version'],
    commit=made['commit'] or '',
    same_clients=tuple(
      x for x in partitions if are_same_clients(partitions[x])
    ),
    measures=tuple((x.name, x.better) for x in form.measures),
  )


def name_of_data(fields: Mapping[str, Any]) -> str:
  """Return the name of a data set; of a user's own that of its place."""
  folder, name = Path(fields.get('data_dir', '')), fields['dataset']
  return folder.resolve().name if name in OWN else name


def _protocol(form: Form) -> list[str]:
  base, first = form.base, form.candidates[form.methods[0]]
  seeds = ', '.join(map(str, form.tuning_seeds))
  apart = {*form.tuning_seeds}.isdisjoint(form.seeds)
  tried = '; '.join(
    f'{name} {", ".join(dict.fromkeys(str(fields[name]) for fields in first))}'
    for name in first[0]
  )
  main, *others = form.measures
  others = ', '.join(f'{x.head} ({x.direction})' for x in others)
  choice = f'Validation chooses by {main.name}, {main.direction}.'
  beside = (
    f'Beside {main.name}, over the clients for whom it is defined: {others}.'
  )
  tuned, kept = base.get('finetune', {}), ['the setting']
  if len(tuned.get('epochs', ())) > 1:
    epochs = ' or '.join(map(str, tuned['epochs']))
    kept.append(f'{epochs} epochs of fine-tuning')
  kept += ['mixtures'] * ('superfed' in form.methods)
  return [
    'Every method has the same rounds, cohorts and local epochs'
    f'{_other_rounds(form)}. One with two models trains each, so at equal '
    'rounds gradients are not equal: the table has them.',
    f'Every method is tuned with the same number of trainings: {len(first)} '
    f'settings with seed {seeds}, {"not" * apart}{"also" * (not apart)} in the '
    f'numbers. Of {paper_name(form.methods[0])}: {tried}{_rates(form)}.',
    f'{base["validation_fraction"]:.0%} of the training examples of each '
    f'client are kept for the choice of {" and of ".join(kept)}. No test '
    'reaches a choice, and nothing is trained again with these examples. All '
    'are compared after personalisation, in the view that validation chose.',
    *_lies(base),
    *[choice] * (main != ACCURACY),
    *[beside] * bool(others),
  ]


def _lies(base: Mapping[str, Any]) -> Iterator[str]:
  """Yield a sentence on attackers and on what the server makes of uploads."""
  attack = without_digest(base.get('attack', 'none'))
  if attack != 'none':
    who = base['attacker_ids'] or f'a share of {base["attackers"]}, by the seed'
    rule = ', '.join([*base['aggregation_before'], base['aggregation']])
    yield (
      f'Clients who attack ({attack}): {who}. They are in no number. What the '
      f'server makes of uploads: {without_digest(rule)}.'
    )


def _rates(form: Form) -> str:
  """Return '; ..', of the rate of fine-tuning where the other one varies."""
  method, tuned = form.methods[0], form.base.get('finetune', {})
  if 'learning_rate' not in form.candidates[method][0]:
    return ''
  if RATE[1] not in form.rate_fields.get(method, RATE):
    return f'; fine-tuning has the rate {tuned.get("learning_rate")}'
  if factors := tuned.get('factors'):
    times = ', '.join(map(str, factors))
    return (
      f'; fine-tuning has that rate, or {times} times it, as validation '
      'chooses, of one trained model'
    )
  return '; the learning rate is that of fine-tuning, too'


def _other_rounds(form: Form) -> str:
  """Return ', but for these rounds: ..' of methods with others, or ''."""
  partitions_of: dict[str, list[str]] = {}
  for partition in form.partitions:
    fields = form.own.get(partition, {})
    rounds = ', '.join(
      f'{paper_name(method)} {fields[method]["rounds"]}'
      for method in form.methods
      if 'rounds' in fields.get(method, {})
    )
    if rounds:
      partitions_of.setdefault(rounds, []).append(partition)
  parts = [f'{text} ({", ".join(of)})' for text, of in partitions_of.items()]
  return f', but for these rounds: {"; ".join(parts)}' if parts else ''
