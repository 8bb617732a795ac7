# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
COLLECTIONS := $(VENV)/collections

# Extra arguments for pytest: make unit PYTEST_ARGS="-k regex -x"
PYTEST_ARGS ?=
# How many processes pytest spreads the tests over: tests wait for clusters most of the time
export PYTEST_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2 + 2)
PYTEST := $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder

# The machine's own Ansible settings and collections must not change what is tested.
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/$(COLLECTIONS)
export ANSIBLE_HOME := $(CURDIR)/$(VENV)/ansible-home
# Tests start hundreds of Pythons: these must not compile what they import each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-drain test check unit integration mutants hostile parity voyage real browser molecule sanity ansible-test lint bench walk build release docs compat importer clean

help: ## Show what can be made
	@echo "usage: make TARGET"; echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install everything into .venv (quick when nothing has changed)
	@hack/setup.sh

demo: setup ## Place, create and remove VMs on a simulated Proxmox cluster
	@$(BIN)/python demo/demo.py vms

demo-drain: setup ## Empty a node of that cluster, and bring its guests back
	@$(BIN)/python demo/demo.py drain

test: setup ## Run everything: lint, sanity, unit and integration tests
	@hack/test.sh lint sanity

check: setup ## Run ruff, mypy and the unit tests of one layer in under a minute (LAYER=engine, proxmox, reservations, workflow, ...; all without it)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --package ansible_collections.qemu_scheduler.proxmox.plugins
	@$(PYTEST) tests/unit/$(LAYER) $(PYTEST_ARGS)

unit: setup ## Run the unit tests
	@$(PYTEST) tests/unit tests/hostile $(PYTEST_ARGS)

integration: setup ## Run the integration tests (real ansible-playbook against the simulated cluster)
	@$(PYTEST) tests/simulator tests/integration tests/voyage $(PYTEST_ARGS)

mutants: setup ## Plant faults in the collection one at a time, and show which test catches each (MUTANTS="ledger lease": only those)
	@$(BIN)/python -m tests.mutants $(MUTANTS)

hostile: setup ## Try 10,000 changed inputs: answers, options, recordings, ... (HOSTILE_CASE=n: that one)
	@HOSTILE_CASES=$${HOSTILE_CASES:-10000} $(PYTEST) --dist load tests/hostile $(PYTEST_ARGS)

parity: setup ## Run the plays of the integration tests in the worker process and as modules, and compare the results
	@$(BIN)/python -m tests.parity -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

voyage: setup ## Let several controllers and their faults happen in 10,000 orders (SEED=n: show that one as a log)
	@$(BIN)/python -m tests.voyage $(if $(SEED),--seed $(SEED),--count $${COUNT:-10000} --workers $${WORKERS:-$$(nproc)})

real: setup ## Run the tests that hold on every cluster against the real one that PROXMOX_HOST names (see docs/developing.md)
	@hack/real.sh $(PYTEST_ARGS)

browser: setup ## Look at the HTML pages in a real Chromium (UPDATE_IMAGES=1: for docs/images)
	@hack/browser.sh $(PYTEST_ARGS)

molecule: setup ## Run the roles' molecule scenarios against a simulated cluster
	@hack/molecule.sh

sanity: setup ## Run ansible-test sanity
	@$(BIN)/python hack/sanity.py

ansible-test: setup ## Run the unit tests and one integration target per module by ansible-test
	@hack/ansible-test.sh

lint: setup ## Run the linters: Python, YAML, Ansible, documentation, changelog, licences
	@hack/lint.sh

bench: setup ## Measure requests and times against the simulated cluster
	@$(BIN)/python -m bench

walk: setup ## Print how many functions a reader meets who follows one task, and the frames to its first filter
	@$(PYTEST) -n 0 -s tests/integration/collection/test_walk.py

build: setup ## Build the collection's tarball into build/
	@hack/build.sh

release: setup ## Make a release: VERSION=x.y.z (DRY_RUN=1: in a copy), see MAINTAINERS.md
	@DRY_RUN=$(DRY_RUN) hack/release.sh "$(VERSION)"

docs: setup ## Update the generated parts of docs/, render the reference into build/docs
	@hack/docs.sh

compat: setup ## Run the tests on every Python and ansible-core that can be found (PYTHONS=3.12 CORES=2.20: on those)
	@hack/compat.sh $(PYTEST_ARGS)

importer: setup ## Check the collection's tarball as Galaxy does when it is uploaded
	@hack/importer.sh

clean: ## Remove everything that was made here
	@rm -rf $(VENV) .venv-* build .hypothesis .mypy_cache .pytest_cache .ruff_cache .ansible tests/output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
