# Everything lives in .venv; a fresh clone needs Python 3.11 or newer and make.
#
#   make PYTHON=python3.12 setup          another Python
#   make PIP_ARGS="..." setup             more arguments for pip, such as another package index
#   make WORKERS=8 ARGS=tests/text test   more test processes; a part of the tests
#   make ARGS=--demo packages             wheel and source archive, and the demo by the wheel
#   make DATA=FOLDER benchmark            measure on raw text of your own

PYTHON ?= python3
PIP_ARGS ?=
DATA ?=
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := $(VENV)/.peers
LOCKS := requirements
# Nothing is installed whose hash is not in a lock; a lock is whole, so that nothing is resolved.
LOCKED = $(BIN)/python -m pip install $(PIP_ARGS) --require-hashes --no-deps
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint audit packages benchmark clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv, or bring it up to date after pyproject.toml or a lock changed

demo: $(STAMP) ## train a deep model on a small corpus that ships with the program, in minutes
	$(BIN)/nmtdeep demo

# Each process uses one thread: two processes with all cores each would slow each other down.
PYTEST = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test: $(STAMP) ## run the tests, except those marked as slow
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMP) ## run all tests
	$(PYTEST) $(ARGS)

lint: $(STAMP) ## check style, formatting, types, and the documentation's site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet, warnings would not count

audit: $(STAMP) ## look up known vulnerabilities of every locked version (needs a network)
	$(BIN)/pip-audit --require-hashes --disable-pip --progress-spinner off \
	  $(foreach lock,development torch benchmark,--requirement $(LOCKS)/$(lock).txt)

packages: $(STAMP) ## build wheel and sdist, install, and use them elsewhere (ARGS=--demo: all of it)
	out=$$(mktemp -d) && $(BIN)/python scripts/check_packages.py $$out/packages $(ARGS); \
	  status=$$?; rm -rf $$out; exit $$status

benchmark: $(PEERS) ## measure training and decoding beside other programs
	PYTHON=$(BIN)/python sh benchmarks/run.sh "$(DATA)"

clean: ## remove .venv, caches and builds; runs and data directories stay
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find nmtdeep tests scripts benchmarks fuzz -name __pycache__ -type d -prune -exec rm -rf {} +

# torch is its build for CPUs where an index has that, else PyPI's, which on Linux brings CUDA.
$(STAMP): pyproject.toml $(wildcard $(LOCKS)/*.txt) | $(BIN)/python
	$(LOCKED) -r $(LOCKS)/build.txt
	$(LOCKED) --no-build-isolation -r $(LOCKS)/development.txt
	$(LOCKED) -r $(LOCKS)/torch-cpu.txt || $(LOCKED) -r $(LOCKS)/torch.txt
	$(BIN)/python -m pip install --no-deps --no-build-isolation --no-index -e .
	$(BIN)/python -m pip check
	@touch $@

$(PEERS): $(STAMP)
	$(LOCKED) -r $(LOCKS)/benchmark.txt
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "nmtdeep needs Python 3.11 or newer, and $(PYTHON) is not: try make PYTHON=python3.12"; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment: install its venv module" \
	    "(python3-venv on Debian and Ubuntu)"; exit 1; }
