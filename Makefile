# Two commands are enough: `make run` and `make test`. Each makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
OUT ?= shared/hindsight_core/weights
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help run test lint types bench bench-stores train stack clean

help:  ## show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/installed  ## install, and serve all functions on port 8100 (ARGS="--port 8200" for another)
	@$(BIN)/hindsight serve --tour $(ARGS)

test: $(VENV)/developing  ## install, and run the tests (ARGS="tests/test_http.py -k batch" for some)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/developing  ## look for faults and for lines that are not formatted
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/developing  ## check the types with both checkers
	@$(BIN)/mypy && $(BIN)/pyright

bench: $(VENV)/developing  ## measure the embedded store, and search and write end to end (SERVICE="--sizes 100000 --many 100")
	@$(BIN)/python tests/benchmarks/store.py $(ARGS)
	@$(BIN)/python tests/benchmarks/service.py $(SERVICE)

bench-stores: $(VENV)/developing  ## measure OpenSearch beside the embedded store, for some ten minutes (ARGS="--sizes 1000")
	@$(BIN)/python tests/benchmarks/stores_side_by_side.py --sizes 1000 10000 100000 $(ARGS)

train: $(VENV)/installed  ## train the weights that ship, on labelled files (DATA=folder SAID=said.npz OUT=folder): docs/deciding.md
	@test -n "$(DATA)" || { echo "Name the folder of labelled files: make train DATA=..." >&2; exit 1; }
	@$(BIN)/python -m hindsight_core.training --data "$(DATA)" --own training/data --out "$(OUT)" $(if $(SAID),--read "$(SAID)") $(ARGS)

stack: $(VENV)/developing  ## start OpenSearch, Redis and every function, without Docker
	@$(BIN)/python -m localstack.stack $(ARGS)

clean:  ## remove the virtual environment and what tools left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "The venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }

# The stamps are newer than pyproject.toml once their install has succeeded, so a second run installs nothing.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Hindsight (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/developing: pyproject.toml $(VENV)/installed
	@echo "Installing what the tests need"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@
