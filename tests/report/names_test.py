"""A method looks the same in every figure and unlike all others."""

import subprocess
import sys

from fedjax_pfl.report import names

METHODS = (
  'fedavg fedbabu fedprox fedper lg_fedavg fedrep per_fedavg ditto local_only '
  'centralized superfed apfl fedconcat scaffold moon fedrs fedlc pfedme'
)


def test_every_method_has_a_look_of_its_own():
  looks = [names.LOOKS[name] for name in METHODS.split()]
  assert len({look.colour for look in looks}) == len(looks)
  assert len({look.name for look in looks}) == len(looks)
  assert len({look.dash for look in looks}) > 4


def test_unknown_names_look_the_same_in_every_process():
  code = "from fedjax_pfl.report import names; print(names.look('fednap'))"
  printed = [
    subprocess.run(
      [sys.executable, '-c', code], capture_output=True, text=True, check=True
    ).stdout.strip()
    for _ in range(2)
  ]
  assert printed == [str(names.look('fednap'))] * 2
  assert names.look('fednap').name == 'fednap'
  assert names.look('fednap') != names.look('fednod')


def test_a_second_run_of_a_method_keeps_its_colour():
  first, second = names.look('fedavg'), names.look('fedavg (run_2)')
  assert second.name == 'FedAvg (run_2)'
  assert second.colour == first.colour and second.dash != first.dash
