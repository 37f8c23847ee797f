# make lab   builds the workbook and opens JupyterLab on it
# make test  runs everything that CI runs
#
# Each works alone on a fresh machine; the second time it is quick. Another build of torch, such as
# one for your GPU: give its version or file as TORCH; README.md tells how.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin

export OMP_WAIT_POLICY := PASSIVE

.PHONY: lab test setup setup-test structure unit editions notebooks browser clean

lab: setup
	$(BIN)/course lab

setup: $(VENV)/.ready-lab

setup-test: $(VENV)/.ready-test

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This course needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." \
	       "Install one and say: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module; on Debian or Ubuntu: apt install python3-venv." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@touch $@

$(VENV)/.ready-lab: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,bench]'
	@touch $@ $(VENV)/.ready-lab

# The parts run one after the other, so that each may use both cores; the last lines are pytest's.
test: setup-test
	$(BIN)/python -m tests.run

structure unit editions notebooks browser: setup-test
	$(BIN)/python -m tests.run $@

clean:
	rm -rf $(VENV) build slides .pytest_cache .mypy_cache .ruff_cache
