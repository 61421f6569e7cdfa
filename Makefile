# Each target sets up .venv by itself: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEV := $(VENV)/ready-to-develop
# A worker for each core; tests of one file stay together until a worker has nothing left to do.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
PYTEST := $(BIN)/pytest -n logical --dist worksteal

.PHONY: demo test test-slow lint bench docs clean

demo: $(READY)
	$(BIN)/canet demo

test: $(DEV)
	$(PYTEST) -m "not slow"

test-slow: $(DEV)
	$(PYTEST) -m slow

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)
	$(BIN)/python -m benchmarks

# The tables of settings and commands come from the code. The build fails on a broken link.
docs: $(DEV)
	$(BIN)/python -m docs.extensions.settings_page
	$(BIN)/python -m docs.extensions.command_line_page
	$(BIN)/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) site .cache .pytest_cache .mypy_cache .ruff_cache

# torch first: its version without CUDA packages satisfies every later requirement. Compiled once and
# in parallel, packages start fast also where PYTHONDONTWRITEBYTECODE is set.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests/|/torch/testing/_internal/' $(VENV)/lib

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e .
	$(COMPILE)
	touch $(READY)

$(DEV): $(READY)
	$(PIP) -e '.[dev]'
	$(COMPILE)
	touch $(DEV)
