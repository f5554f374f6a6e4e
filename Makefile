# Each command creates the environment it needs. Requirements: Python 3.11 or newer, and make.
# For users:
#   make demo             the main results on bundled data, as tables and an HTML page
#   make serve-demo       a collector with the live demo and a simulated crowd
#   make example-learning phones learn to read digits that nobody uploads (docs/tutorial.md)
#   make example-text     sentence embeddings, released at several budgets (docs/text-example.md)
#   make example-flower   federated learning with Flower, in a separate environment (docs/federated.md)
# For contributors (CONTRIBUTING.md):
#   make test        linters, types and all tests
#   make lint        style, types and import contracts
#   make docs        the documentation as a site, in site/
#   make map         docs/module-map.md, generated from the imports
#   make bench       speed compared with a recorded run, and figures of the documentation
#   make fuzz        a million hostile inputs
# For releasers (docs/supply-chain.md):
#   make package     sdist and wheel, each tested in a new environment
#   make extras      resolve every extra for every Python version, from metadata alone
#   make lock        requirements/*.txt: exact versions with hashes
#   make audit-deps  check installed files, licences and known vulnerabilities
#   make sbom        the software bill of materials of a collector, as CycloneDX
#   make clean       remove everything that these commands create

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --retries 10 --constraint constraints.txt

CODE   := src tests experiments benchmarks examples tools docs

.PHONY: demo serve-demo example-learning example-text example-flower test lint docs map bench fuzz
.PHONY: package extras lock audit-deps sbom clean

demo: $(VENV)/demo-ready
	$(BIN)/python -m experiments demo --out offaxis-demo.html

serve-demo: $(VENV)/serve-ready
	@$(BIN)/python -m experiments serve-demo

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --tb=short -p no:schemathesis

lint: $(VENV)/test-ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The variable silences a notice of the theme about MkDocs 2.
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

example-learning: $(VENV)/serve-ready
	@$(BIN)/python -m examples.learning.digits

# Install the pinned torch first, as for the tests.
example-text: $(BIN)/python
	$(PIP) torch
	$(PIP) --editable '.[text]'
	$(BIN)/python -m examples.text.sentiment

# Flower's requirements conflict with ours, so it has a separate environment.
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
	$(PIP) --editable '.[html]'
	@touch $@

$(VENV)/serve-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[collector]'
	@touch $@

$(VENV)/release-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[release,collector]'
	@touch $@

# Install the pinned torch first, so that later requirements for it are already satisfied.
$(VENV)/test-ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-flower .venv-plugin dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf fuzz-findings offaxis-demo.html offaxis-collector.cdx.json
