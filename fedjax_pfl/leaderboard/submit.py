"""From the counts of a comparison to an entry."""

import os
from collections.abc import Mapping

import numpy as np

from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.leaderboard import entries, form_data, stored_counts
from fedjax_pfl.leaderboard.method_results import METHOD
from fedjax_pfl.leaderboard.verify import Load
from fedjax_pfl.report.styles import display_name


def submit(
  source: str | os.PathLike,
  load_form: Load,
  method: str,
  partition: str,
  stated: Mapping[str, str],
  out: str | os.PathLike,
) -> None:
  """Write the entry of one method into a new folder.

  Args:
    source: the folder of a comparison by a form.
    load_form: returns the form of a name.
    method: its name, as in tables or in configs.
    partition: one of the form; '' if it has one alone.
    stated: what the counts do not say: authors, paper and code.
    out: the folder.
  """
  about, found = stored_counts.read(stored_counts.files_of(source))
  form = load_form(about.name)
  if len(found) == 1:
    partition = partition or next(iter(found))
  one_of([*found], 'a partition of it').check('--partition', partition)
  known = {
    name: one
    for one in found[partition]
    if one.kind == METHOD and not one.obstacle
    for name in (one.method, display_name(one.method))
  }
  one_of([*known], 'a method with numbers').check('--method', method)
  data, entry = form_data.load(form, partition), known[method]
  views = {'before': entry.before, 'after': entry.after}
  costs = np.mean(entry.costs, 0).tolist()
  fields = entries.blank(data) | {
    'method': display_name(entry.method),
    **stated,
    'framework': f'fedjax_pfl {about.version}',
    'settings': entry.choice.fields,
    'view': entry.choice.view,
    'trainings': form.trainings,
    **dict(zip(entries.COSTS, costs, strict=False)),
    'accuracy': {
      view: round(float(own.means.mean()), 2)
      for view, own in views.items()
      if own is not None
    },
  }
  # Nobody else has an edited commit, and no commit of ours has your file.
  has_commit = not (about.commit.endswith('-dirty') or is_code(entry.method))
  fields['code'] = stated['code'] or about.commit * has_commit
  entries.check_fields(fields, out)
  entries.check(fields, entry, data)
  entries.write(fields, entry, out)
