# Two commands do all the set-up: `make demo` (the main job) and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Processes of the tests; a file's tests stay in one.
WORKERS ?= 2
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint docs clean

demo: $(VENV)/.core
	$(BIN)/di2pose demo --out out/demo

test: lint
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py out/docs

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "di2pose needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) -e '.[video,serve]'
	touch $@

$(VENV)/.dev: pyproject.toml packages/people/pyproject.toml experiments/pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) -e '.[dev]' -e packages/people -e experiments
	touch $@

clean:
	rm -rf $(VENV) out
