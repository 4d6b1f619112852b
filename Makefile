# Two commands are the contract: `make check` runs the gate on a real vLLM release, `make test`
# runs every test. Both set up what they need in .venv first.
#
#   PYTHON=python3.12          the interpreter that .venv is made with (3.11.4 or later)
#   TARGET_PYTHON=/path/python an interpreter that already has what vLLM imports; then nothing
#                              heavy (torch, transformers, ...) is installed here
#   TARGET=0.33.0              what `make check` judges

PYTHON ?= python3
TARGET_PYTHON ?=
TARGET ?= 0.33.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready$(if $(TARGET_PYTHON),,-target)

comma := ,

ifneq ($(TARGET_PYTHON),)
export HITPROOF_PYTHON := $(TARGET_PYTHON)
endif

.PHONY: check test lint clean

check: $(STAMP)
	$(BIN)/hitproof prove
	$(BIN)/hitproof check $(TARGET)

test: lint
	$(BIN)/pytest --numprocesses auto --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "hitproof needs Python 3.11.4 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev$(if $(TARGET_PYTHON),,$(comma)target)]'
	touch $@

clean:
	rm -rf $(VENV)
