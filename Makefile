# Two commands do everything on a fresh machine: `make run` and `make test`.
# Needed: Python 3.11 or newer, make, and a package index.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin

.PHONY: run test lint soak bench chart clean

run: $(VENV)/ready
	$(BIN)/headgate loadcheck

test: $(VENV)/ready lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(VENV)/ready
	HEADGATE_EXAMPLES=$(or $(EXAMPLES),5000) $(BIN)/python -m pytest -n 2 --timeout 7200 tests/property

bench: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.run
	$(BENCH)/bin/python -m benchmarks.users
	$(BENCH)/bin/python -m benchmarks.chart

chart: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.chart

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(BENCH)/ready: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --editable . --requirement benchmarks/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
