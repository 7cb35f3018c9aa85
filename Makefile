# Each target sets up what it needs in a virtual environment of its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One BLAS thread for each test process: two of them on two cores would wait for each other.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --doctest-modules --pyargs tagstream tests README.md

.PHONY: demo test check bench reproduce clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The package is installed as a user would: a file missing from the wheel fails here.
$(VENV)/installed: $(BIN)/python pyproject.toml $(shell find src -name '*.py' -o -name '*.html' -o -name '*.json' -o -name '*.jsonl' -o -name '*.csv')
	$(BIN)/python -m pip install --quiet --upgrade ".[plot,fetch]"
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps .
	touch $@

$(VENV)/tools-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group $*
	touch $@

demo: $(VENV)/installed  ## tags for a message board: suggestions, a correction that sticks, a page
	$(BIN)/tagstream demo

test: $(VENV)/installed $(VENV)/tools-test  ## the test suite
	$(PYTEST)

check: test $(VENV)/tools-check  ## lint, types, layers and the slow tests besides
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(PYTEST) -m slow

reproduce: $(VENV)/installed  ## the paper's experiments; then every number and picture of the docs
	$(BIN)/tagstream reproduce results
	$(BIN)/tagstream report results report --document docs/reproduce.md --document README.md

bench: $(VENV)/installed $(VENV)/tools-bench  ## side-by-side benchmarks
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist
