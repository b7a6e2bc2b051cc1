"""The form of result.json that its readers rely on.

Its checksums find damage; a file from elsewhere may have any content with the
checksums that belong to it.
"""

from collections.abc import Mapping
from typing import Any

FORM = {
  'algorithm': str,
  'dataset': str,
  'rounds': int,
  'seconds': int | float,
  'views': dict,
}
CHOICES = ('last', 'validation')  # of a run that keeps examples for choosing


def check(result: Mapping[str, Any]) -> None:
  """Raise ValueError where a part that a reader uses is missing or another."""
  for name, kind in FORM.items():
    _expect(isinstance(result.get(name), kind), name)
  try:
    _check_parts(result)
  except (LookupError, TypeError, AttributeError) as error:
    raise ValueError(
      f'a part is missing or of another kind: {error}'
    ) from error


def _check_parts(result: Mapping[str, Any]) -> None:
  groups = [result['views'], result.get('unseen', {})]
  groups += (result.get('test_best') or {}).values()
  for summaries in groups:
    for name, summary in summaries.items():
      _check_summary(name, summary)
  server = dict(result.get('global') or {})
  _check_summary('global', server.pop('last10', {}))
  _check_summary('global', server)
  for best in (result.get('test_best_view') or {}).values():
    _expect(not best or isinstance(best['together']['view'], str), 'view')
  if {'select', *CHOICES} & {*result}:
    _check_choice(result)


def _check_choice(result: Mapping[str, Any]) -> None:
  for name in CHOICES:
    chosen = result[name]
    summary = chosen['views'][chosen['view']]
    _check_summary(name, summary)
    _expect(_has_spread(summary) and isinstance(chosen['round'], int), name)
  share = result['validation']['validation_accuracy']
  _expect(isinstance(share, int | float), 'validation_accuracy')
  _expect(result[result['select']]['view'] in result['views'], 'select')
  for best in result['test_best'].values():
    if 'together' in best:
      _expect(_has_spread(best['together']), 'together')


def _has_spread(summary: Mapping[str, Any]) -> bool:
  return summary['mean'] is None or summary['std'] is not None


def _check_summary(name: str, summary: Mapping[str, Any]) -> None:
  """Expect numbers by their names; the interval is two of them."""
  ends = summary.get('interval') or [None, None]
  numbers = [n for key, n in summary.items() if key != 'interval']
  _expect(isinstance(ends, list) and len(ends) == 2, name)
  are_numbers = all(isinstance(n, int | float | None) for n in numbers + ends)
  _expect(are_numbers, name)


def _expect(is_so: bool, name: str) -> None:
  if not is_so:
    raise ValueError(f'{name} is not as a run writes it')
