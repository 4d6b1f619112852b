# Two commands are the contract: `make check` runs the gate on a real vLLM release, `make test`
# runs the tests. `make quick` runs those that need no release and no solver, `make test-all` the
# long tails, too. `make yardstick` compares what is found with what was found before. `make docs`
# renders the spec as a site, `make engine` runs a real engine of vLLM.
# Each sets up what it needs in .venv first.
#
#   PYTHON=python3.12          the interpreter that .venv is made with (3.11 or later)
#   TARGET_PYTHON=/path/python an interpreter that already has what vLLM imports; then nothing
#                              heavy (torch, transformers, ...) is installed here
#   TARGET=0.33.0              what `make check` judges
#   PYTHONS="python3.13"       what `make pythons` tests with, beside .venv
#   PARTS="check faults"       what `make yardstick` compares; `python -m benchmarks.yardstick -h`
#   LONG=sample SEED=7         `make test` runs a sample of the long tails, too; see conftest.py

PYTHON ?= python3
TARGET_PYTHON ?=
TARGET ?= 0.33.0
PYTHONS ?= python3.12 python3.13
PARTS ?=
LONG ?= none
SEED ?= 1

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready$(if $(TARGET_PYTHON),,-target)

ifneq ($(TARGET_PYTHON),)
export HITPROOF_PYTHON := $(TARGET_PYTHON)
endif

.PHONY: check test tests test-all quick pythons lint yardstick docs engine lock clean

check: $(STAMP)
	$(BIN)/hitproof prove
	$(BIN)/hitproof check $(TARGET)

# The types are checked in one process, beside which the tests begin.
test: $(STAMP)
	$(MAKE) --jobs 2 lint tests LONG=$(LONG) SEED=$(SEED)

tests: $(STAMP)
	$(BIN)/pytest --numprocesses auto --dist worksteal --long $(LONG) --seed $(SEED) --durations 0

test-all: LONG := all
test-all: test

quick: $(VENV)/.ready
	$(BIN)/ruff check --quiet .
	$(BIN)/pytest --quiet --numprocesses auto --dist worksteal -m "not release and not slow" \
	  spec reference conformance proofs

# What symbolic execution assumes of Python, and proofs by it, under other versions of Python.
pythons:
	for python in $(PYTHONS); do \
	  bin=.venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])')/bin && \
	  $$python -m venv $${bin%/bin} && \
	  $$bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock \
	    z3-solver hypothesis pytest && \
	  PYTHONHASHSEED=0 PYTHONPATH=src $$bin/python -m pytest --noconftest proofs/tests/test_semantics.py \
	    proofs/tests/test_unbounded.py proofs/tests/test_reading.py || exit 1; \
	done

# What is found, compared with benchmarks/frozen/; fails on any loss.
yardstick: $(STAMP)
	$(BIN)/python -m benchmarks.yardstick $(PARTS)

docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

# A real engine on the CPU, in an environment of its own in hitproof's cache (HITPROOF_ENGINE names
# another place): about 4 GB, which it says first.
engine: $(STAMP)
	$(BIN)/python -m hitproof.vllm_integration.engine.suite

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.ready: extras := dev
$(VENV)/.ready-target: extras := dev,target
$(VENV)/.ready $(VENV)/.ready-target: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hitproof needs Python 3.11 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock \
	  --editable '.[$(extras)]'
	touch $@

# The versions that everything here is installed in: those that the tests ran with. To take newer ones,
# upgrade them in .venv, run the tests, then this.
lock: $(VENV)/.ready-target
	$(BIN)/python -m pip freeze --exclude-editable | sed "s/+cpu$$//" > requirements.lock
	touch $(STAMP)

clean:
	rm -rf $(VENV) $(VENV)-*
