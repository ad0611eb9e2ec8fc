# Everything starts from nothing but a Python >= 3.12: `make demo`, `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Without bytecode every process of a test compiles hushgrad again, which is half of its start.
unexport PYTHONDONTWRITEBYTECODE
# Agents sync their journals to the disk. In memory the tests need not wait for it.
export PYTEST_DEBUG_TEMPROOT := $(wildcard /dev/shm)
# Three workers on two cores: tests of links and processes spend much of their time waiting.
PYTEST := -m pytest -n 3 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out

# The first of these that *runs* (a shim may exist and fail) and is new enough.
CANDIDATES = $(PYTHON) python3.14 python3.13 python3.12 python3 $(wildcard $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python)
FIND_PYTHON = for p in $(CANDIDATES); do \
	  if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then echo "$$p"; exit 0; fi; done; exit 1

.PHONY: help demo test test-all test-blas lint format bench docs clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@python="$$($(FIND_PYTHON))" || { \
	  echo "hushgrad needs Python 3.12 or newer, and none was found here (tried: $(strip $(CANDIDATES))). Install one, or name it: make PYTHON=/path/to/python3.12" >&2; \
	  exit 1; }; \
	echo "creating $(VENV) with $$($$python --version)"; \
	"$$python" -m venv $(VENV)

$(VENV)/.sim: $(BIN)/python pyproject.toml constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sim]' -c constraints.txt
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt  # with all of .sim, by one call of pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $(VENV)/.sim $@

$(VENV)/.docs: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	@touch $@

demo: $(VENV)/.sim  ## the paper's Fig. 2 and Fig. 3, plots and claims, into OUT=out
	$(BIN)/hushgrad demo --out $(OUT)

# Compiling is a third of the time. Without optimisation it is cheaper; tests marked `optimised`
# have programs as users have them, and so do all tests of `make test-all` and `make test-blas`.
# Properties have 25 examples here and 100 there, and only `make test-all` takes all combinations of a table.
test: $(VENV)/.dev  ## the tests, without the long studies
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not slow" \
	  --hypothesis-profile=quick

test-all: $(VENV)/.dev  ## every test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# Kernels of OpenBLAS, and NumPy and XLA without AVX: all round differently.
SENSITIVE = tests/test_docs.py tests/test_examples.py tests/privacy tests/algorithms/test_exactness.py tests/algorithms/test_equations.py tests/fitting
test-blas: $(VENV)/.dev  ## the numerically sensitive tests, as other processors compute
	for kernels in OPENBLAS_CORETYPE=Haswell OPENBLAS_CORETYPE=Zen \
	  "OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES=X86_V3,X86_V4 XLA_FLAGS=--xla_cpu_max_isa=SSE4_2"; do \
	  env $$kernels OPENBLAS_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not slow" $(SENSITIVE) || exit 1; done

lint: $(VENV)/.dev  ## ruff (lint, format) and pyright, strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## how fast the simulator and a network of agents are on this machine
	$(BIN)/python -m benchmarks --scaling
	$(BIN)/python -m benchmarks.network

docs: $(VENV)/.docs  ## the documentation, warnings as errors, into docs/_build
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

clean:  ## remove the environment and what was built
	rm -rf $(VENV) docs/_build out .pytest_cache .ruff_cache .hypothesis
