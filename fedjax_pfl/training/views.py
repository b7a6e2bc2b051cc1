"""Which views are evaluated at the end, and among which validation chooses."""

from fedjax_pfl.client.personalization import names_of
from fedjax_pfl.evaluation.choices import FINETUNED, families, main_view
from fedjax_pfl.settings import Settings


def final_views(settings: Settings) -> tuple[str, ...]:
  """Return the views that are evaluated at the end.

  With `validation_fraction` also those among which it chooses.
  """
  views = settings.evaluation.views
  if not settings.data.validation_fraction or FINETUNED not in views:
    return views
  first = views.index(FINETUNED)
  more = candidate_views(settings)
  return tuple(dict.fromkeys((*views[:first], *more, *views[first:])))


def candidate_views(settings: Settings) -> tuple[str, ...]:
  """Return the views among which validation chooses, in order of preference.

  The main one, which is 'finetuned' or else the last of `views`; with it the
  shorter fine-tunings, of which 0 epochs are 'initial', or the others of its
  family (mix_0.0 to mix_1.0).
  """
  views = settings.evaluation.views
  main = main_view(views)
  if main == FINETUNED:  # of all epochs, the shortest first
    epochs = {*settings.finetune.epochs}
    fewest = ['initial'] * (0 in epochs and 'initial' in views)
    return (*fewest, *names_of(tuple(sorted(epochs - {0}))))
  family = [names for names in families(views).values() if main in names]
  return tuple(*family) or (main,)
