"""Run directories -> one HTML file that works offline and without scripts.

The template, page.html.jinja, includes page.css and page.js. Everything that
comes from a run is text, which the template escapes.
"""

import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.report.finished_runs import dataset_of, read_comparable
from fedjax_pfl.report.page import (
  choices,
  client_sections,
  cost_tables,
  opening,
  provenance,
  sweep_section,
  tables,
  unseen_table,
)
from fedjax_pfl.report.page.groups import (
  Group,
  before_and_after,
  common_settings,
  make_groups,
  numbers,
)
from fedjax_pfl.report.styles import style_of

# {run directory: published numbers of its views}
Published = Mapping[str, tables.Printed]
TEMPLATE = 'page.html.jinja'
DATASETS = {  # as papers write them
  'cifar10': 'CIFAR-10',
  'cifar100': 'CIFAR-100',
  'emnist': 'EMNIST',
  'tiny_imagenet': 'Tiny ImageNet',
}
DETAILS = {
  'shards': ('shards_per_client', '{} a client'),
  'pathological': ('shards_per_client', '{} a client'),
  'classes': ('classes_per_client', '{} a client'),
  'dirichlet': ('dirichlet_beta', 'beta {}'),
  'dirichlet_capped': ('dirichlet_beta', 'beta {}'),
}


def save(
  workdirs: Sequence[str | os.PathLike],
  out: str | os.PathLike,
  published: Published | None = None,
  begin: opening.Opening | None = None,
) -> pathlib.Path:
  """Write the page of finished runs to `out` (.html); return `out`."""
  out = check_output(out)
  html = render(workdirs, published, begin)
  with atomic_files.writing_output('out', out):
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_bytes(out, html.encode())
  return out


def check_output(out: str | os.PathLike) -> pathlib.Path:
  """Return the path; refuse a name that is not that of a page."""
  out = pathlib.Path(out)
  if out.suffix != '.html' or out.is_dir():
    raise bad_input(
      'out',
      got=str(out),
      expected='a file name that ends in .html',
      choices=[out.with_suffix('.html') if out.name else 'report.html'],
      cause='a folder, or another kind of file',
    )
  return out


def render(
  workdirs: Sequence[str | os.PathLike],
  published: Published | None = None,
  begin: opening.Opening | None = None,
) -> str:
  """Return the page of finished runs on one dataset.

  It may `begin` with a question about them, and the answers.

  >>> html = render(['runs/fedavg', 'runs/fedbabu'])
  """
  groups = make_groups(read_comparable(workdirs))
  printed = _printed(groups, published or {})
  sections = client_sections.make_sections(groups)
  head, sweep = _head(groups), sweep_section.find_sweep(groups)
  if sweep and sweep.on_validation:
    head['lead'] = sweep_section.lead(sweep)
  if begin is not None:
    head |= {'title': begin.title, 'lead': begin.lead}
    pairs = opening.make_section(begin, groups)
    sections = [*([pairs] if pairs else []), *sections]
  return load_template(TEMPLATE).render(
    **head,
    answers=begin and begin.table,
    sweep=sweep_section.make_sections(sweep) if sweep else [],
    methods=_methods(groups),
    summary=tables.summary(groups, printed),
    choices=choices.choices(groups),
    unseen=unseen_table.unseen_clients(groups),
    sections=sections,
    cost=cost_tables.cost(groups),
    all_views=tables.all_views(groups),
    clients=cost_tables.clients(groups),
    differences=provenance.differences(groups),
    agreements=provenance.agreements(groups),
    runs=provenance.runs(groups),
    records=provenance.records(groups),
  )


def load_template(name: str, *folders: pathlib.Path):
  """Return a template of these folders or of this one, all text escaped."""
  import jinja2  # 0.1 s

  places = [*folders, pathlib.Path(__file__).parent]
  loader = jinja2.FileSystemLoader(places)
  environment = jinja2.Environment(
    loader=loader,
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(name)


def _printed(
  groups: Sequence[Group], published: Published
) -> list[tables.Printed]:
  """Return the published numbers for every line: those of its first run."""
  known = {
    os.path.realpath(path): numbers for path, numbers in published.items()
  }
  return [
    next(
      (
        known[path]
        for path in (os.path.realpath(run.path) for run in group.runs)
        if path in known
      ),
      {},
    )
    for group in groups
  ]


def _methods(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the line style for every class of the style sheet."""
  return {
    group.css: style_of(group.runs[0].result['algorithm']) for group in groups
  }


def _head(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the title, the result in one sentence, and the facts."""
  common = common_settings(groups)
  first = groups[0].runs[0]
  name = dataset_of(first.path, first.result)
  dataset = name.rpartition(' (')[0] or name  # without the digest
  return {
    'title': f'Personalisation on {DATASETS.get(dataset, dataset)}',
    'lead': _lead(groups),
    'facts': [(name, value) for name, value in _facts(groups, common) if value],
  }


def _lead(groups: Sequence[Group]) -> str:
  """Return the line with the highest accuracy, and its lead."""
  means = []
  for group in groups:
    before, after = before_and_after(group)
    means.append((float(np.mean(numbers(group, after, 'mean'))), before, group))
  means = [entry for entry in means if math.isfinite(entry[0])]
  if not means:
    return 'No client has an accuracy.'
  means.sort(key=lambda entry: -entry[0])
  (best, before, group), *others = means
  ahead = best - others[0][0] if others else math.inf
  if ahead < 0.05:  # '0.0 points above'
    first = [one.label for mean, _, one in means if best - mean < 0.05]
    return (
      f'{", ".join(first[:-1])} and {first[-1]} end highest: {best:.1f}\u00a0% '
      'on average over clients.'
    )
  if others:
    return (
      f'{group.label} ends highest: {best:.1f}\u00a0% on average over clients, '
      f'{ahead:.1f} points above {others[0][2].label}.'
    )
  if before is None:
    return f'{group.label}: {best:.1f}\u00a0% on average over clients.'
  start = float(np.mean(numbers(group, before, 'mean')))
  return (
    f'{group.label}: {start:.1f}\u00a0% on average over clients before '
    f'personalisation, {best:.1f}\u00a0% after it.'
  )


def _facts(
  groups: Sequence[Group], common: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
  """Yield settings that all lines share: (name, value)."""
  yield 'model', without_digest(common.get('model') or '')
  yield 'clients', common.get('num_clients')
  way = common.get('partition')
  detail, word = DETAILS.get(way, ('', ''))
  words = f', {word.format(common[detail])}' if detail in common else ''
  yield 'unseen clients', common.get('unseen_clients')
  yield 'partition', way and f'{without_digest(way)}{words}'
  yield 'client fraction', common.get('client_fraction')
  yield 'dropout rate', common.get('dropout_rate')
  yield 'local epochs', common.get('local_epochs')
  rounds = {run.result['rounds'] for group in groups for run in group.runs}
  yield 'rounds', ' or '.join(f'{number:,}' for number in sorted(rounds))
  seeds = {len(group.runs) for group in groups}
  yield 'seeds', ' or '.join(str(number) for number in sorted(seeds))
