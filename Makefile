# `make demo` and `make test` work on a fresh clone that has Python 3.11 or newer and Node.
# What setup has made is remembered in stamp files, so that a second run costs nothing; a changed pin makes it anew.

BIN := .venv/bin
EMULATOR := .emulator/bin
OUTPUTS ?= outputs.json
PIP_INSTALL := pip install --quiet --disable-pip-version-check --no-input

# The first Python on the path that is new enough; looked for only where an environment has to be built.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check coverage sim e2e bench deploy clean

help:  ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.sluice.stamp .emulator/.stamp node_modules/.stamp build/dependencies.stamp build/kinds.stamp  ## Build all environments (the others do it themselves)

demo: setup  ## Drain a backlog of replays on the embedded emulator
	$(BIN)/python -m ops.local.demo

# On all cores, and here rather than in pytest's own options: one test alone is to start at once, print and be debugged.
# A worker begins with a row of whole files, so that a synth or a simulation that a file shares is made once, and takes
# over what another has left when it is done.
PYTEST_ALL := $(BIN)/pytest -n auto --dist worksteal

test: setup  ## Run the tests that need no emulator
	$(PYTEST_ALL)

check: setup  ## Run what CI runs: lint, format, types, advisories, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m ops.audit
	$(PYTEST_ALL)

coverage: setup  ## Run the same tests, and print which lines and branches none of them reaches
	$(PYTEST_ALL) --cov --cov-report=term-missing:skip-covered

SEEDS ?= 1000
SIM_STATE := build/sim-seeds.json

sim: setup  ## Run SEEDS=5000 seeds of all faults at once, over all processors; interrupted, it goes on where it was
	$(BIN)/python -m ops simulate --scenario mixed-faults --seed 1 --seeds $(SEEDS) --state $(SIM_STATE)

e2e: setup  ## Run the tests that need the emulator
	$(BIN)/pytest -m e2e tests

bench: setup  ## Run the tests that measure time
	$(BIN)/pytest -m bench -s tests

# What is deployed now says which classes it has; a first deployment has no outputs to ask: make deploy FIRST=1
deploy: setup  ## Deploy to AWS, unless a class that goes still has rows
	$(if $(FIRST),,$(BIN)/python -m ops --outputs $(OUTPUTS) guard)
	node_modules/.bin/cdk deploy --all --outputs-file $(OUTPUTS)

clean:  ## Remove what was built and cached; the environments stay
	rm -rf build cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find app.py shared functions infra ops tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.stamp: requirements.txt
	$(call build_environment,.venv)
	$(BIN)/$(PIP_INSTALL) -r requirements.txt
	@touch $@

# The command `sluice`. Built by the pinned setuptools that is there already: an environment of its own would fetch one.
.venv/.sluice.stamp: pyproject.toml .venv/.stamp
	$(BIN)/$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

# Of its own, since the emulator pins a botocore of its own.
.emulator/.stamp: ops/local/requirements.txt
	$(call build_environment,.emulator)
	$(EMULATOR)/$(PIP_INSTALL) -r ops/local/requirements.txt
	@touch $@

node_modules/.stamp: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# Here and not at synth, which then needs no network. Without .pyc files, whose bytes differ from run to run. A stamp
# lies outside, or it would be shipped.
build/dependencies.stamp: functions/requirements.txt .venv/.stamp .emulator/.stamp
	rm -rf build/dependencies
	$(call stage_dependencies,functions/requirements.txt,build/dependencies/lambda,build/dependencies/host)
	@touch $@

KIND_REQUIREMENTS := $(wildcard functions/worker/kinds/*.requirements.txt)

build/kinds.stamp: $(KIND_REQUIREMENTS) .venv/.stamp .emulator/.stamp
	rm -rf build/kinds
	for file in $(KIND_REQUIREMENTS); do kind=$$(basename $$file .requirements.txt); \
		$(call stage_dependencies,$$file,build/kinds/lambda/$$kind,build/kinds/host/$$kind) || exit 1; done
	@touch $@

# Twice: compiled for Lambda's processor and C library (Python 3.11 there has glibc 2.26, so manylinux2014 and nothing
# later), and for the emulator, which runs the functions on this machine: what it pins for itself is no conflict.
LAMBDA_WHEELS := --platform manylinux2014_aarch64 --implementation cp --python-version 3.11 --only-binary=:all:
stage_dependencies = $(BIN)/$(PIP_INSTALL) --no-compile --target $(2) $(LAMBDA_WHEELS) -r $(1) && \
	$(EMULATOR)/$(PIP_INSTALL) --no-compile --no-warn-conflicts --target $(3) -r $(1)

define build_environment
@test -n "$(PYTHON)" || { echo "Sluice needs Python 3.11 or newer on the path" >&2; exit 1; }
test -x $(1)/bin/pip || $(PYTHON) -m venv $(1)
endef
