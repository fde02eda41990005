# `make demo` and `make test` work on a fresh clone that has Python 3.11 or newer and Node.
# What setup has made is remembered in stamp files, so that a second run costs nothing; a changed pin makes it anew.

BIN := .venv/bin
EMULATOR := .emulator/bin
DEPENDENCIES := build/dependencies
OUTPUTS ?= outputs.json
PIP_INSTALL := pip install --quiet --disable-pip-version-check --no-input

# The first Python on the path that is new enough; looked for only where an environment has to be built.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check sim e2e bench deploy clean

help:  ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.stamp .emulator/.stamp node_modules/.stamp build/dependencies.stamp build/kinds.stamp  ## Build all environments (the others do it themselves)

demo: setup  ## Drain a backlog of replays on the embedded emulator
	$(BIN)/python -m ops.local.demo

test: setup  ## Run the tests that need no emulator
	$(BIN)/pytest

check: setup  ## Run what CI runs: lint, format, types, advisories, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m ops.audit
	$(BIN)/pytest

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
	rm -rf build cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find app.py shared functions infra ops tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.stamp: requirements.txt
	$(call build_environment,.venv)
	$(BIN)/$(PIP_INSTALL) -r requirements.txt
	@touch $@

# Of its own, since the emulator pins a botocore of its own.
.emulator/.stamp: ops/local/requirements.txt
	$(call build_environment,.emulator)
	$(EMULATOR)/$(PIP_INSTALL) -r ops/local/requirements.txt
	@touch $@

node_modules/.stamp: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# Here and not at synth, which then needs no network. Without .pyc files, whose bytes differ from run to run. The stamp
# lies outside, or it would be shipped.
build/dependencies.stamp: functions/requirements.txt .venv/.stamp
	rm -rf $(DEPENDENCIES)
	$(BIN)/$(PIP_INSTALL) --no-compile --target $(DEPENDENCIES) -r functions/requirements.txt
	@touch $@

# Kinds with dependencies of their own get them twice: compiled for Lambda's processor and C library (Python 3.11 there
# has glibc 2.26, so manylinux2014 and nothing later), and for the emulator, which runs the functions on this machine.
KIND_REQUIREMENTS := $(wildcard functions/worker/kinds/*.requirements.txt)
LAMBDA_WHEELS := --platform manylinux2014_aarch64 --implementation cp --python-version 3.11 --only-binary=:all:

build/kinds.stamp: $(KIND_REQUIREMENTS) .venv/.stamp .emulator/.stamp
	rm -rf build/kinds
	set -e; for file in $(KIND_REQUIREMENTS); do kind=$$(basename $$file .requirements.txt); \
		$(BIN)/$(PIP_INSTALL) --no-compile --target build/kinds/lambda/$$kind $(LAMBDA_WHEELS) -r $$file; \
		$(EMULATOR)/$(PIP_INSTALL) --no-compile --target build/kinds/host/$$kind -r $$file; \
	done
	@touch $@

define build_environment
@test -n "$(PYTHON)" || { echo "Sluice needs Python 3.11 or newer on the path" >&2; exit 1; }
test -x $(1)/bin/pip || $(PYTHON) -m venv $(1)
endef
