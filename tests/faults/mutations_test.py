"""A few of every campaign of bad input; `make faults` tries all of them."""

from faults import commands, mutations
from faults.outcome import draw_many
from faults.watch import attempt


def test_mutated_settings_are_refused_in_a_sentence_or_none_is_needed():
  outcome = mutations.run(40, seed=0)
  assert outcome.tried == 40 and outcome.failures == ()


def test_mistaken_command_lines_are_refused_in_a_sentence(tmp_path):
  outcome = commands.try_here(30, 0, tmp_path)
  assert outcome.tried == 30 and outcome.failures == ()


def test_the_campaign_would_notice():
  assert 'KeyError' in attempt(lambda: {}['a']).faults[0]
  assert 'wrote' in attempt(lambda: open('/dev/null', 'w').close()).faults[0]
  first, second = (draw_many(mutations.mutations(), 3, 1) for _ in range(2))
  assert [*map(str, first)] == [*map(str, second)]
