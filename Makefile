# Each target sets up what it needs in a virtual environment of its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLD := $(VENV)-oldest
# With regions that `tagstream report` writes.
DOCUMENTS := README.md $(addprefix docs/,reproduce.md clean.md young.md)
# One BLAS thread for each test process: two of them on two cores would wait for each other.
ONE = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
PYTEST = $(ONE) $(BIN)/python -m pytest -n auto
SUITE = --doctest-modules --pyargs tagstream tests README.md
SOURCES := pyproject.toml $(shell find src -type f -not -name '*.pyc')

# Kernels of OpenBLAS under which the exact tests must hold: the oldest, the usual and the widest.
ifeq ($(shell uname -m),x86_64)
KERNELS := Nehalem Haswell $(shell grep -qs avx512f /proc/cpuinfo && echo SkylakeX)
endif
# On the oldest dependencies: what touches them. The rest of the suite is the same Python code.
CORE := $(addprefix tests/,test_base.py test_blocks.py test_compat_river.py test_contracts.py test_data_*.py test_examples.py test_head.py \
	test_kernels.py test_knn.py test_lines.py test_memory.py test_metric.py test_metrics.py test_oml.py test_osml_elm.py test_persist.py \
	test_projection.py test_published.py test_schedule.py test_serve_http.py test_serve_writer.py test_asked.py test_sklearn.py \
	test_space.py test_text.py)

.PHONY: demo serve test lint exact cluster oldest cover docs slow check bench screenshots reproduce release lock clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The package is installed as a user would: a file missing from the wheel fails here.
$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --upgrade ".[plot,fetch,serve,excel,frames]"
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps .
	touch $@

$(VENV)/tools-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group $*
	touch $@

$(OLD)/installed: $(SOURCES) tools/oldest.py
	test -x $(OLD)/bin/python || $(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --upgrade pip
	$(OLD)/bin/python tools/oldest.py > $(OLD)/constraints.txt
	$(OLD)/bin/python -m pip install --quiet -c $(OLD)/constraints.txt ".[plot,fetch,serve,excel,frames]" --group test
	$(OLD)/bin/python -m pip install --quiet --force-reinstall --no-deps .
	touch $@

demo: $(VENV)/installed  ## tags for a message board: suggestions, a correction that sticks, a page
	$(BIN)/tagstream demo

serve: $(VENV)/installed  ## the service with some example texts; prints its address
	$(BIN)/tagstream serve .cache/serve --example

test: $(VENV)/installed $(VENV)/tools-test $(VENV)/tools-web  ## the test suite
	tools/browser.sh
	$(PYTEST) $(SUITE)

lint: $(VENV)/installed $(VENV)/tools-check  ## style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

exact: $(VENV)/installed $(VENV)/tools-test $(VENV)/tools-web  ## tests to the last bit, with several BLAS threads and under several kernels of OpenBLAS
	$(PYTEST) -q -m exact tests/test_blas_threads.py
	@own=$$($(BIN)/python -c "import numpy, threadpoolctl as t; print(*{i.get('architecture') for i in t.threadpool_info()})"); \
	for kernel in $(KERNELS); do \
		if [ $$kernel = "$$own" ]; then echo "$$kernel is this processor's own: see make test"; continue; fi; \
		echo "OPENBLAS_CORETYPE=$$kernel"; \
		OPENBLAS_CORETYPE=$$kernel $(PYTEST) -q -m "exact and not slow" tests || exit 1; \
	done

cluster: $(VENV)/installed $(VENV)/tools-test $(VENV)/tools-ray  ## the memory on Ray, in a small form
	$(ONE) $(BIN)/python -m pytest -q tests/test_cluster.py

oldest: $(OLD)/installed  ## the core of the suite on the oldest dependencies (Python 3.10 to 3.12)
	$(ONE) $(OLD)/bin/python -m pytest -n auto -q $(CORE)

slow: $(VENV)/installed $(VENV)/tools-test $(VENV)/tools-web  ## the tests that take long
	tools/browser.sh
	$(PYTEST) $(SUITE) -m slow

cover: $(VENV)/installed $(VENV)/tools-test $(VENV)/tools-web $(VENV)/tools-cover  ## which lines the tests run
	$(PYTEST) $(SUITE) --cov --cov-report=term:skip-covered --cov-report=html

docs: $(VENV)/installed $(VENV)/tools-docs  ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: test lint slow exact cluster oldest docs cover  ## all of it

screenshots: $(VENV)/installed $(VENV)/tools-web  ## pictures of the page, in docs/pictures
	tools/browser.sh
	$(BIN)/python tools/screenshots.py

reproduce: $(VENV)/installed  ## the paper's experiments; then every number and picture of the docs
	$(BIN)/tagstream reproduce results
	$(BIN)/tagstream report results report $(addprefix --document ,$(DOCUMENTS))

bench: $(VENV)/installed $(VENV)/tools-bench  ## side-by-side benchmarks
	$(BIN)/python -m benchmarks

release: $(BIN)/python $(VENV)/tools-release  ## build both files, and try them in empty environments
	PYTHON=$(BIN)/python tools/release.sh $(PYTHONS)

lock: $(BIN)/python  ## the versions that CI installs, in tools/ci-lock.txt
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --upgrade --universal --python-version 3.10 --no-header --no-annotate --quiet \
		--extra plot --extra fetch --extra serve --extra excel --extra frames \
		--group test --group web --group check --group cover --group docs --group release --output-file tools/ci-lock.txt

clean:
	rm -rf $(VENV) $(OLD) build dist
