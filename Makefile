# Two commands on a machine that has nothing but Python 3.11 or newer and make.
#
#   make demo   Local only, FedAvg, FedBABU on handwritten digits: table, page
#   make test   linter, formatter check and tests
#
#   make compare   every method by the demo's protocol, tuned alike: a page
#   make leaderboard  the same with three partitions of 20 clients
#   make test-all  every golden case and every loop, too
#   make wheel     dist/*.whl, with the commands and configs
#   make docs      this site: site/index.html; make docs-serve shows it
#   make audit     known weaknesses of the pinned packages; needs a network
#   make bench     speed against this machine's limits, PyTorch, and the bars
#   make gpu       what only a GPU can say: tests, bars, cells; gpu.jsonl
#   make faults    kills, damage, full disks, wrong settings: how many ended well
#   make accelerators  compilers for a TPU and an H100: compile_for.py needs them
#   make browser   Chromium, for the tests of the report page (Debian; root)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More for pip where PyTorch is installed: an index of builds for a CPU, say.
TORCH ?=
# Compilers for devices that are not there, 1.4 GB. Those of CUDA go with jax.
COMPILERS := libtpu==0.0.42.1 jax-cuda13-pjrt==0.10.2 \
  jax-cuda13-plugin==0.10.2 nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile \
  --no-loadscope-reorder

# What is imported is compiled once, by who imports it first: a fifth of all
# files. pip would compile all of them, for two thirds of the installation.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo compare leaderboard test test-all faults audit bench gpu wheel \
  docs docs-serve accelerators browser clean
demo: $(VENV)/installed
	$(BIN)/python experiments/demo.py

compare: $(VENV)/installed
	$(BIN)/python experiments/compare.py --form=demo

leaderboard: $(VENV)/installed
	$(BIN)/python experiments/compare.py --form=digits

test: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PYTEST) --short

test-all: $(VENV)/installed
	$(PYTEST)

faults: $(VENV)/installed
	$(BIN)/python -m tests.faults

wheel:
	$(PYTHON) .ci/wheel.py dist

docs: $(VENV)-docs/installed
	$(VENV)-docs/bin/mkdocs build --quiet --strict

docs-serve: $(VENV)-docs/installed
	$(VENV)-docs/bin/mkdocs serve

# --strict: a package that nobody could look up is a failure, too.
audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet pip-audit
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip \
	  -r constraints.txt

# Without PyTorch all is measured but what is compared with it.
bench: $(VENV)/installed
	-$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip \
	  install --quiet --retries=1 -c constraints.txt $(TORCH) -e '.[bench]'
	$(BIN)/python experiments/bench.py --bars=all

# With the python that has jax for the GPU; ten minutes, then type it again.
gpu:
	$(PYTHON) experiments/gpu.py

accelerators: $(VENV)-accelerators/installed

browser:
	apt-get update
	apt-get install -y --no-install-recommends chromium fonts-dejavu-core

$(VENV)/installed: setup.cfg constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt \
	  -e '.[test]'
	touch $@

# The package's text is read and nothing of it is imported, so jax is not needed.
# The scripts come, too: a site needs no network, nor does building it again.
$(VENV)-docs/installed: docs/requirements.txt constraints.txt docs/npm_files.py
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet -c constraints.txt \
	  -r docs/requirements.txt || { echo 'The site needs, once and with a \
	  network: $(VENV)-docs/bin/python -m pip install -r docs/requirements.txt'; \
	  exit 1; }
	$(VENV)-docs/bin/python docs/npm_files.py
	touch $@

# Without their dependencies: nothing is run, so no cuDNN and no driver.
$(VENV)-accelerators/installed: setup.cfg constraints.txt
	$(PYTHON) -m venv $(VENV)-accelerators
	$(VENV)-accelerators/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-accelerators/bin/python -m pip install --quiet \
	  -c constraints.txt -e .
	$(VENV)-accelerators/bin/python -m pip install --quiet --no-deps \
	  $(COMPILERS)
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-accelerators $(VENV)-docs site dist \
	  .pytest_cache .ruff_cache .hypothesis
