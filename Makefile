# A few commands do everything on a bare machine with Python 3.11+ and make:
#   make demo    own environment, the main result on bundled data, a table and an HTML report
#   make serve-demo   own environment, then a collector, the live demo and a simulated crowd
#   make test    linters, types and all tests
#   make example-text     sentences by a real encoder, released at several budgets (docs/text-example.md)
#   make example-flower   federated learning over Flower, in an environment of its own (docs/federated.md)
# For contributors (CONTRIBUTING.md):
#   make lint    style, types, and which room may import which
#   make docs    the documentation as a site, in site/
#   make map     docs/module-map.md, drawn from the imports as they are
#   make bench   speed against a record, and the figures of the docs
#   make fuzz    a million hostile inputs
# For releasers (docs/supply-chain.md):
#   make package     sdist and wheel, each used in an empty environment
#   make extras      every extra resolved for every Python, on metadata alone
#   make lock        requirements/*.txt, exact and with hashes
#   make audit-deps  installed files, licences and known vulnerabilities
#   make sbom        what a collector consists of, as CycloneDX
#   make clean       everything that these made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

CODE   := src tests experiments benchmarks examples tools docs

.PHONY: demo serve-demo example-text example-flower test lint docs map bench fuzz
.PHONY: package extras lock audit-deps sbom clean

demo: $(VENV)/demo-ready
	$(BIN)/python -m experiments demo --out offaxis-demo.html

serve-demo: $(VENV)/serve-ready
	@$(BIN)/python -m experiments serve-demo

# Real browsers, servers and killed processes on a shared machine: a test that fails is run once more, and named.
test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --reruns 1 -rR --tb=short -p no:schemathesis

lint: $(VENV)/test-ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The variable silences a notice of the theme about a later mkdocs.
docs: $(VENV)/test-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

map: $(VENV)/test-ready
	$(BIN)/python -m tools.module_map

bench: $(VENV)/test-ready
	$(PIP) --editable '.[bench]'
	$(BIN)/python -m benchmarks --guard benchmarks/guard.json
	$(BIN)/python -m benchmarks.exact
	$(BIN)/python -m benchmarks.published_setting
	$(BIN)/python -m benchmarks.means

# torch first and pinned, as for the tests.
example-text: $(BIN)/python
	$(PIP) torch
	$(PIP) --editable '.[text]'
	$(BIN)/python -m examples.text.sentiment

# Flower's own requirements clash with ours: it has an environment of its own, which is made once.
example-flower: $(BIN)/python
	$(BIN)/python -m examples.flower.environment
	.venv-flower/bin/python -m examples.flower.train

fuzz: $(VENV)/test-ready
	$(PIP) --editable '.[fuzz]'
	$(BIN)/python -m benchmarks.fuzz

package: $(VENV)/release-ready
	rm -rf dist
	$(BIN)/python -m tools.package dist

extras: $(VENV)/release-ready
	$(BIN)/python -m tools.extras

lock: $(VENV)/release-ready
	$(BIN)/python -m tools.lock

audit-deps: $(VENV)/release-ready
	$(BIN)/python -m tools.dependencies

sbom: $(VENV)/release-ready
	$(BIN)/python -m tools.sbom offaxis-collector.cdx.json

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

$(VENV)/release-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[release,collector]'
	@touch $@

# torch first and pinned: a later request for it is then already satisfied.
$(VENV)/test-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-flower dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf fuzz-findings offaxis-demo.html offaxis-collector.cdx.json
