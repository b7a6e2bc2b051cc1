"""Run directories -> one HTML file that works offline and without scripts.

The template, page.html.jinja, includes page.css and page.js. Everything that
comes from a run is text, which the template escapes; a content security policy
forbids the page to use the network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.charts import figure_file
from fedjax_pfl.results.page import sections, sweep_section, tables
from fedjax_pfl.results.page.styles import css_of, style_of
from fedjax_pfl.results.runs.groups import (
  Group,
  common_settings,
  make_groups,
)
from fedjax_pfl.results.runs.run import dataset_in_words, read_comparable
from fedjax_pfl.results.statistics import standing

# {run directory: published numbers of its views}
Published = Mapping[str, tables.Printed]
DETAILS = {
  'shards': ('shards_per_client', '{} a client'),
  'pathological': ('shards_per_client', '{} a client'),
  'pathological_uneven': ('classes_per_client', '{} a client'),
  'classes': ('classes_per_client', '{} a client'),
  'dirichlet': ('dirichlet_beta', 'beta {}'),
  'dirichlet_capped': ('dirichlet_beta', 'beta {}'),
}


def save(workdirs: Sequence[AnyPath], out: AnyPath, *about: Any) -> Path:
  """Write the page of `render` to `out` (.html); return `out`."""
  out = check_output(out)
  html = render(workdirs, *about)
  with atomic_files.writing(out, 'out'):
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_bytes(out, html.encode())
  return out


def check_output(out: AnyPath) -> Path:
  """Return the path; refuse a name that is not that of a page."""
  cause = 'a folder, or another kind of file'
  return figure_file.check_output(out, 'jinja2', ['.html'], cause)


def render(
  workdirs: Sequence[AnyPath],
  published: Published | None = None,
  tuned_by: Measure | None = None,
) -> str:
  """Return the page of finished runs on one dataset."""
  groups = make_groups(read_comparable(workdirs))
  common = common_settings(groups)
  measure = tuned_by or groups[0].first.measure
  sweep = sweep_section.find_sweep(groups, measure)
  is_chosen = sweep and sweep.on_validation
  known = {Path(path): views for path, views in (published or {}).items()}
  printed = [  # those of the first run of a line
    next((known[run.path] for run in group.runs if run.path in known), {})
    for group in groups
  ]
  shown = [make_section(groups) for make_section in sections.IN_ORDER]
  return load_template('page.html.jinja').render(
    title=f'Personalisation on {dataset_in_words(groups[0].first.dataset)}',
    lead=sweep_section.lead(sweep) if is_chosen else _lead(groups),
    facts=[(name, value) for name, value in _facts(groups, common) if value],
    sweep=sweep and sweep_section.make_section(sweep),
    methods={css_of(group): style_of(group.first.method) for group in groups},
    summary=tables.summary(groups, printed),
    choices=tables.choices(groups),
    unseen=tables.unseen_clients(groups),
    sections=[section for section in shown if section],
    cost=tables.cost(groups),
    all_views=tables.all_views(groups),
    clients=tables.clients(groups),
    differences=tables.differences(groups),
    agreements=[(name, json.dumps(common[name])) for name in sorted(common)],
    runs=tables.runs(groups),
    records=[
      (run.path, json.dumps(run.record, indent=2, ensure_ascii=False))
      for group in groups
      for run in group.runs
    ],
  )


def load_template(name: str):
  """Return a template of this folder, all text escaped."""
  import jinja2  # 0.1 s

  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(name)


def _lead(groups: Sequence[Group]) -> str:
  """Return who is best; of a single group what it has before and after."""
  places, (group, *others) = tables.rank(groups), groups
  measure = group.first.measure
  head = '' if measure == ACCURACY else f'{measure.head}. '
  text = f'{head}{standing.lead(places, measure)}'
  if others or not places or group.before is None:
    return text
  before = measure.said(group.mean(group.before, 'mean'))
  return f'{text[:-1]}, {before} before it.'


def _facts(
  groups: Sequence[Group], common: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
  """Yield settings that all lines share: (name, value)."""
  yield 'model', without_digest(common.get('model') or '')
  yield 'clients', common.get('num_clients')
  later = common.get('unseen_clients')
  yield 'unseen clients', ', '.join(later) if isinstance(later, list) else later
  way = common.get('partition')
  detail, form = DETAILS.get(way, ('', ''))
  more = f', {form.format(common[detail])}' if detail in common else ''
  yield 'partition', way and f'{without_digest(way)}{more}'
  for name in ('client_fraction', 'dropout_rate', 'deadline', 'local_epochs'):
    yield name.replace('_', ' '), common.get(name)
  rounds = {run.result['rounds'] for group in groups for run in group.runs}
  yield 'rounds', ' or '.join(f'{number:,}' for number in sorted(rounds))
  seeds = {len(group.runs) for group in groups}
  yield 'seeds', ' or '.join(map(str, sorted(seeds)))
