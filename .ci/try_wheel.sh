#!/usr/bin/env bash
# Installs a wheel into an empty environment, and runs it outside of any clone:
#   .ci/try_wheel.sh python3.12 dist/fedjax_pfl-*.whl
set -euo pipefail
wheel=$(realpath "$2")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet "$wheel"
cd "$place"
pfl=venv/bin/fedjax-pfl
"$pfl" train --config=digits:fedbabu,quick --workdir=a
"$pfl" settings > settings.txt
# What the core lacks is one sentence, and nothing is written.
if "$pfl" report a --out=a.html 2> sentence; then exit 1; fi
grep -q "pip install 'fedjax_pfl\[report\]'" sentence
test "$(wc -l < sentence)" = 1 && test ! -e a.html
venv/bin/pip install --quiet "$wheel[compare]"
"$pfl" report a --out=a.html
"$pfl" export --run=a --client=server --out=a.npz
"$pfl" compare --config=digits:fedavg,quick --methods=fedavg,fedbabu \
  --config.validation_fraction=0.2 --grid learning_rate=0.01,0.03 \
  --seeds=2 --workdir=compared
test -e compared/compare_seeds_0_1.tex
