"""The flags of the bench: cases, names, and what is refused."""

import pytest

from experiments.benchmarks import bars, options
from experiments.benchmarks.cases import Case
from fedjax_pfl.core.errors import BadInput

ASKED = {
  'model': ['convnet4'],
  'clients': [],
  'steps': [],
  'batch': ['50'],
  'clients_per_chunk': ['auto'],
  'conv_impl': ['auto'],
  'dtype': ['float32'],
  'devices': ['1'],
}


@pytest.mark.parametrize(
  ('change', 'near'),
  [
    ({'model': ['convnet5']}, 'did you mean convnet4?'),
    ({'conv_impl': ['auto', 'gem']}, 'did you mean gemm?'),
    ({'dtype': ['bfloat16']}, 'Choices: float32, float64'),
    (
      {'clients_per_chunk': ['0']},
      "got '0', expected a whole number, 1 or more",
    ),
    ({'clients': ['ten']}, "got 'ten', expected a whole number"),
    ({'devices': ['0']}, "got '0', expected a whole number, 1 or more"),
    ({'model': []}, "got '', expected one or more values"),
  ],
)
def test_a_wrong_case_is_a_sentence(change, near):
  with pytest.raises(BadInput, match='Likely cause: ') as caught:
    options.make_cases({**ASKED, **change})
  assert near in str(caught.value)


@pytest.mark.parametrize(
  ('check', 'words', 'near'),
  [
    (options.make_methods, 'fedprix', 'did you mean fedprox?'),
    (options.make_bars, 'startups', 'did you mean startup?'),
    (options.make_works, 'evaluations', 'did you mean evaluation?'),
    (options.make_methods, 'fedprox,all', "got 'fedprox,all'"),
    (options.make_bars, 'startup,all', "got 'startup,all'"),
    (options.make_bars, 'none,startup', "got 'none,startup'"),
  ],
)
def test_a_wrong_name_is_a_sentence(check, words, near):
  """All and none stand alone."""
  with pytest.raises(BadInput, match='Likely cause: ') as caught:
    check(words.split(','))
  assert near in str(caught.value)


def test_methods_are_compared_in_one_case():
  options.check_methods([Case('convnet4')], False)
  for cases, with_torch in (
    ([Case('a'), Case('b')], False),
    ([Case('a')], True),
  ):
    with pytest.raises(BadInput, match=r'--methods: got .[12] cases'):
      options.check_methods(cases, with_torch)


def test_cases_are_every_combination():
  asked = {
    **ASKED,
    'clients_per_chunk': ['auto', '2'],
    'model': ['convnet4', 'resnet18'],
  }
  cases = options.make_cases(asked)
  assert [(case.model, case.clients_per_chunk) for case in cases] == [
    ('convnet4', 'auto'),
    ('convnet4', '2'),
    ('resnet18', 'auto'),
    ('resnet18', '2'),
  ]
  # Where nothing else is asked for, the table has the cases of the bars.
  assert cases[0] == bars.standard_case('convnet4')


def test_defaults_are_those_of_the_first_bar():
  (case,) = options.make_cases({**ASKED, 'model': ['pfl_cnn'], 'batch': []})
  assert case == Case('pfl_cnn', 50, 5, 10, momentum=0.0)
  cases = options.make_cases({**ASKED, 'devices': ['1', '2']})
  assert [case.devices for case in cases] == [1, 2]


def test_bars_of_every_model_by_name():
  names = options.make_bars(['all'])
  assert {*bars.TRAINING} < {*names}
  assert options.make_bars(['pfl_cnn', 'resnet50']) == ['pfl_cnn', 'resnet50']
  fedavg_cnn = bars.TRAINING['fedavg_cnn']
  assert [case.batch for case in fedavg_cnn] == [10, 50]
  # So that clients are dealt out evenly over two processes.
  cases = [case for own in bars.TRAINING.values() for case in own]
  assert all(case.clients % 2 == 0 for case in cases)
