# Two commands do everything on a fresh machine: `make run` and `make test`.
# Needed: Python 3.11 or newer, make, and a package index.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin

# Whatever the compiled form is made of.
SOURCES := setup.py src/headgate/decision.py src/headgate/stores/local.py \
	src/headgate/stores/cell.py $(wildcard src/headgate/algorithms/*.py) \
	$(wildcard src/headgate/resilience/breaker/*.py) \
	$(shell find src/headgate/stores/zone src/headgate/_native -name '*.p*' ! -name '*.pyc' ! -name built.py)

.PHONY: run test lint build soak fuzz soak-redis soak-service sanitize bench chart clean

run: $(VENV)/native
	$(BIN)/headgate serve --rules examples/rules.yaml

# Everything, on the compiled form if it could be built; and then on pure Python what depends on
# the form: the rest only passes through it.
FORMS := tests/unit tests/property tests/contract tests/fault/test_exact.py tests/fault/test_kills.py \
	tests/fault/test_breaker_threads.py tests/fault/test_resilience_threads.py
test: $(VENV)/native lint
	$(BIN)/python -m pytest -n 2
	if $(BIN)/python -c 'import headgate; exit(not headgate.compiled)'; then \
		HEADGATE_PURE=1 $(BIN)/python -m pytest -n 2 $(FORMS); fi

build: $(VENV)/native
	$(BIN)/python -c 'import headgate; print("headgate:", headgate.compiled)'

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(VENV)/native
	HEADGATE_EXAMPLES=$(or $(EXAMPLES),5000) $(BIN)/python -m pytest -n 2 --timeout 7200 tests/property

# 100,000 rules files and a million sets of headers of any content.
fuzz: $(VENV)/native
	HEADGATE_EXAMPLES=5000 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/property/test_rules_fuzz.py
	HEADGATE_EXAMPLES=25000 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/property/test_header_fuzz.py

# A million random traces of each algorithm on a real server, against the Python reference.
soak-redis: $(VENV)/native
	HEADGATE_TRACES=$(or $(TRACES),1000000) $(BIN)/python -m pytest -n 2 --timeout 86400 \
		tests/redis/test_words.py tests/redis/test_spread.py

# A thousand connections held for a minute: nobody is dropped, nobody sees an error.
soak-service: $(VENV)/native
	HEADGATE_SOAK=$(or $(SECONDS),60) $(BIN)/python -m pytest -s --timeout 7200 tests/interop/test_service_crowd.py

# The C code in a build of its own that watches every access to memory; needs gcc or clang.
SANITIZED := build/sanitized
FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1
sanitize: $(VENV)/ready
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -r src tests setup.py pyproject.toml README.md LICENSE MANIFEST.in $(SANITIZED)
	find $(SANITIZED) -name '*.so' -delete
	cd $(SANITIZED) && HEADGATE_CFLAGS="$(FLAGS)" $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	test -e $(SANITIZED)/src/headgate/_native/built.py # else nothing was built, and pure Python would pass
	cd $(SANITIZED) && ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=src:tests \
		LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
		$(CURDIR)/$(BIN)/python -m pytest -p no:cacheprovider -n 2 tests/contract \
		tests/unit/test_memory_store.py tests/unit/test_compiled.py tests/unit/test_zone_store.py \
		tests/unit/test_zone_inside.py \
		tests/unit/test_zone_fuzz.py tests/unit/test_zone_processes.py tests/fault/test_table.py \
		tests/fault/test_exact.py tests/property/test_forms.py

bench: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.run
	$(BENCH)/bin/python -m benchmarks.envoy
	$(BENCH)/bin/python -m benchmarks.service
	$(BENCH)/bin/python -m benchmarks.chart

chart: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.chart

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/native

$(VENV)/native: $(VENV)/ready $(SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@

$(BENCH)/ready: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --editable . --requirement benchmarks/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
	find src -name '*.so' -delete -o -name built.py -delete
