# `make help` lists the targets. Everything is installed into .venv and frontend/node_modules, nothing else is touched
# (but `make test` installs Chromium with apt-get where it runs as root).

PYTHON ?= python3
VENV ?= .venv
# The index that torch is installed from, where the usual one would bring a CUDA build that you do not want.
TORCH_INDEX ?=
CHECK ?=
# What `make dist` tries the archives on; else python3.10 … python3.14, those that are here.
PYTHONS ?=
# The torch that `make test-torch` runs the handler on.
TORCH ?= 2.15.0

BIN := $(VENV)/bin
# What tests do is checked as strictly as the rest, but they need not annotate their signatures.
# A cache of its own: other flags would throw the first one away each time.
MYPY_FOR_TESTS := --cache-dir .mypy_cache/tests --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --no-warn-unused-ignores
ENVIRONMENT := $(VENV)/.installed
# torch goes first: pip keeps what is there.
PIP_INSTALL = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL_TORCH = $(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==$(1)
# Containers often set that variable: then each process would compile all tests and the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto
# Left out of `make check`, which ends within a minute on two cores.
LONG_TESTS := torch or browser or slow or large
# What runs side by side prints when it ends, where make can do that.
ONE_AFTER_THE_OTHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync)
NODE_MODULES := frontend/node_modules/.installed

.DEFAULT_GOAL := help
.PHONY: help demo check test test-torch thorough soak lint types docs frontend frontend-check screenshots proto dist benchmark lock browser prerequisites clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: prerequisites $(ENVIRONMENT) ## train a small compiled model and open TensorBoard on it (CHECK=1: only check that it works)
	@$(BIN)/python scripts/demo.py $(if $(filter-out 0,$(CHECK)),--check)

check: lint ## ruff, mypy and the unit tests that need no browser, torch or large recording: within a minute
	@echo "==> Unit tests"
	@TB_TORCHCOMPILE_RECORDINGS= $(PYTEST) --quiet -m "not ($(LONG_TESTS))"

test: prerequisites $(ENVIRONMENT) browser ## set everything up and run all checks and tests
	@echo "==> Checks of the sources, Python's and the frontend's side by side"
	@$(MAKE) --no-print-directory -j2 $(ONE_AFTER_THE_OTHER) lint frontend-check
	@echo "==> Tests"
	@$(PYTEST)

thorough: $(ENVIRONMENT) browser ## run what takes too long for `make test`: property tests with many new examples, all large recordings
	@$(PYTEST) -m "hypothesis or large" --hypothesis-profile thorough

test-torch: .venv-torch-$(TORCH)/.installed ## run the tests that compile on another torch, in an environment of its own: TORCH=2.15.0
	@.venv-torch-$(TORCH)/bin/python -m pytest --numprocesses auto -m torch

lint: $(ENVIRONMENT) ## ruff and mypy
	@echo "==> ruff and mypy"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy $(MYPY_FOR_TESTS) tests benchmarks/diagnosis

frontend: $(NODE_MODULES) ## rebuild the committed bundle in tb_torchcompile_plugin/static (needs Node.js)
	@scripts/node.sh "building the frontend" npm run build

types: $(ENVIRONMENT) ## regenerate frontend/src/api/types.ts and docs/reference from the routes, structs, causes and commands
	@$(BIN)/python tools/make_types.py
	@$(BIN)/python tools/make_docs.py

docs: $(ENVIRONMENT) ## build the documentation as a site with search into site/, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html, or with search: $(BIN)/python -m http.server -d site"

frontend-check: $(NODE_MODULES)
	@echo "==> Frontend: types, lint, format, unit tests"
	@scripts/node.sh "the frontend's checks" sh -c 'npm run --silent check && npm run --silent test'

screenshots: $(ENVIRONMENT) browser ## make pictures of every panel and state into runs/screenshots; those of the documentation into docs/screenshots
	@$(BIN)/python tools/make_screenshots.py

proto: ## regenerate summary_pb2.py after a change of summary.proto
	@tools/make_gencode.sh

dist: prerequisites $(ENVIRONMENT) ## build wheel and sdist into dist/, and try them in empty environments of each Python here
	@echo "==> Building"
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	@ls -l dist
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python scripts/smoke.py dist/* $(if $(PYTHONS),--python $(PYTHONS))

benchmark: $(ENVIRONMENT) ## measure time and memory on large traces and logs, and count the functions behind an answer
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.scale
	@$(BIN)/python -m benchmarks.structured_log
	@$(BIN)/python -m benchmarks.timeline
	@$(BIN)/python -m benchmarks.timeline_browser
	@$(BIN)/python -m benchmarks.first_panel
	@$(BIN)/python -m benchmarks.panels
	@$(BIN)/python -m benchmarks.table_browser
	@$(BIN)/python -m benchmarks.jobs
	@$(BIN)/python -m benchmarks.index --traces 32
	@$(BIN)/python -m benchmarks.functions_per_answer

soak: $(ENVIRONMENT) ## run 100,000 damaged inputs and requests, 1,000 kills, 10,000 profiler cycles and 8 simulated hours: overnight
	@failed=; for attack in mutants kills cycles steady; do \
	  echo "==> $$attack"; $(BIN)/python -m benchmarks.reliability $$attack || failed=1; \
	done; test -z "$$failed"

lock: $(ENVIRONMENT) ## pin the packages in .venv that `dev` needs in constraints.txt, which all installations use
	@$(BIN)/python tools/make_constraints.py
	@touch $(ENVIRONMENT)

clean: ## remove everything that the other targets have made
	rm -rf $(VENV) .venv-torch-* frontend/node_modules runs/demo runs/demo.cache build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

prerequisites:
	@scripts/prerequisites.sh $(PYTHON)

browser:
	@scripts/install_browser.sh

$(ENVIRONMENT): pyproject.toml setup.py constraints.txt | prerequisites
	@echo "==> Installing the package and its tools into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(call INSTALL_TORCH,2.13.0)
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

.venv-torch-%/.installed: pyproject.toml setup.py constraints.txt | prerequisites
	@echo "==> Installing the package with torch $* into $(@D)"
	@$(PYTHON) -m venv $(@D)
	@$(call INSTALL_TORCH,$*)
	@$(PIP_INSTALL) -e '.[test]'
	@touch $@

$(NODE_MODULES): frontend/package-lock.json
	@scripts/node.sh "installing the frontend's packages" npm ci --no-audit --no-fund --loglevel=error
	@if [ -d $(@D) ]; then touch $@; fi
