# Each target sets up .venv by itself: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# A worker for each core; tests of one file stay together until a worker has nothing left to do.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
PYTEST := $(BIN)/pytest -n logical --dist worksteal

.PHONY: demo test test-slow lint bench docs clean

demo: $(READY)
	$(BIN)/canet demo

test: $(READY)
	$(PYTEST) -m "not slow"

test-slow: $(READY)
	$(PYTEST) -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

# The settings' tables are made from the code; pages are checked strictly, also their links.
docs: $(READY)
	$(BIN)/python -m docs.extensions.settings_page
	$(BIN)/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) site .cache .pytest_cache .mypy_cache .ruff_cache

# torch first: its version without CUDA packages satisfies every later requirement. Compiled once and
# in parallel, packages start fast also where PYTHONDONTWRITEBYTECODE is set.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 -x '/tests/|/torch/testing/_internal/' $(VENV)/lib
	touch $(READY)
