# Each target creates the environment it needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEV := $(VENV)/ready-to-develop
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
# One worker per core. A worker without work takes tests from another worker.
PYTEST := pytest -n logical --dist worksteal

.PHONY: demo test test-slow test-lowest lint bench docs clean

demo: $(READY)
	$(BIN)/canet demo

test: $(DEV)
	$(BIN)/$(PYTEST) -m "not slow"

test-slow: $(DEV)
	$(BIN)/$(PYTEST) -m slow

# Install the lowest versions that pyproject.toml allows, and run the tests that need no extra.
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip install --resolution lowest-direct -e '.[test]'
	$(LOWEST)/bin/$(PYTEST) -m "not slow" tests/nn tests/methods tests/estimator tests/cli/test_graphs.py

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)
	$(BIN)/python -m benchmarks

# The first commands write pages from the code. The last one fails on broken links.
docs: $(DEV)
	$(BIN)/python -m docs.extensions.settings_page
	$(BIN)/python -m docs.extensions.command_line_page
	$(BIN)/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) $(LOWEST) site .cache .pytest_cache .mypy_cache .ruff_cache

# Compile all packages in parallel once. They then start fast, even if PYTHONDONTWRITEBYTECODE is set.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests/|/torch/testing/_internal/' $(VENV)/lib src

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH) -e .
	$(COMPILE)
	touch $(READY)

# All in one step, without $(READY) before it: pip and the compiler then run once.
$(DEV): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH) -e '.[dev]'
	$(COMPILE)
	touch $(READY) $(DEV)
