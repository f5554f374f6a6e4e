# A few commands do everything on a bare machine with Python 3.11+ and make:
#   make demo    own environment, the main result on bundled data, a table and an HTML report
#   make serve-demo   own environment, then a collector, the live demo and a simulated crowd
#   make test    linters, types and all tests
#   make example-text   sentences by a real encoder, released at several budgets (docs/text-example.md)
# Others: make lint, make bench, make fuzz (a million hostile inputs), make clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo serve-demo example-text test lint bench fuzz clean

demo: $(VENV)/demo-ready
	$(BIN)/offaxis demo --out offaxis-demo.html

serve-demo: $(VENV)/serve-ready
	@$(BIN)/offaxis serve-demo

# Python 3.11 may fail with "AST constructor recursion depth mismatch" when two threads parse at once, and
# formatting a traceback parses: so tracebacks are plain, and no plugin of schemathesis looks at them.
test: lint
	PYTHONNODEBUGRANGES=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --tb=native -p no:schemathesis

lint: $(VENV)/test-ready
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

bench: $(VENV)/test-ready
	$(PIP) --editable '.[bench]'
	$(BIN)/offaxis bench --guard benchmarks/guard.json
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/published_setting.py
	$(BIN)/python benchmarks/means.py

# torch first and pinned, as for the tests.
example-text: $(BIN)/python
	$(PIP) torch
	$(PIP) --editable '.[text]'
	$(BIN)/python -m examples.text.sentiment

fuzz: $(VENV)/test-ready
	$(PIP) --editable '.[fuzz]'
	$(BIN)/python -m benchmarks.fuzz

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "offaxis needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[report]'
	@touch $@

$(VENV)/serve-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[collector]'
	@touch $@

# torch first and pinned: a later request for it is then already satisfied.
$(VENV)/test-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis fuzz-findings offaxis-demo.html
