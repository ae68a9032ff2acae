# `make` lists the targets. The settings of `make run` are variables: make run PORT=9000

VENV      := .venv
BIN       := $(VENV)/bin
PIP       := $(BIN)/pip install --quiet --disable-pip-version-check
# What running needs (requirements.lock), and what tests and lint need besides.
RUNS      := $(VENV)/.runs
DEVELOPS  := $(VENV)/.develops
TYPES     := $(VENV)/types
PYTHON    ?= python3
TEST_ARGS ?=
# Tests mostly wait for servers; more processes than there are cores keep those busy. A file's
# tests stay together, for they share what takes long to set up.
PYTEST_PARALLEL ?= --numprocesses 4 --dist loadfile

export RESERVATION_HOST     ?= 127.0.0.1
export RESERVATION_PORT     ?= $(or $(PORT),8787)
export RESERVATION_DATABASE ?= $(if $(filter undefined,$(origin DATABASE)),data/reservations.db,$(DATABASE))
export RESERVATION_WORKERS  ?= $(or $(WORKERS),1)

.DEFAULT_GOAL := help
.PHONY: help install run test lint format contract docs site dist lock lab cluster verify rebuild replay bench bench-postgres bench-quick bench-full clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(DEVELOPS) ## set up .venv for running, tests and lint; runs nothing

$(RUNS): requirements.lock setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.x ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEVELOPS): requirements-dev.lock $(RUNS)
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

run: $(RUNS) ## serve on 127.0.0.1:8787 (PORT=, DATABASE=, WORKERS= or RESERVATION_*)
	@exec $(BIN)/reservation-expiry serve

test: install ## run every test (TEST_ARGS="-k name" for some)
	$(BIN)/python -m pytest $(PYTEST_PARALLEL) $(TEST_ARGS)

lint: install $(TYPES)/reservation_expiry ## check style, formatting, types, and that everything is used
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(TYPES) $(BIN)/mypy -p reservation_expiry
	$(BIN)/vulture domain infrastructure api reservation_expiry

# setup.cfg maps the rooms into one package; mypy reads no such mapping, so it is shown the
# package as it is when installed, by links.
$(TYPES)/reservation_expiry: $(DEVELOPS)
	rm -rf $(TYPES)
	mkdir -p $@
	ln -s $(addprefix $(CURDIR)/,domain infrastructure api $(wildcard reservation_expiry/*.*)) $@/

format: install ## put everything into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

contract: install ## replay the recorded HTTP contract against a fresh server
	$(BIN)/python -m pytest tests/contract $(TEST_ARGS)

docs: install ## write docs/cli.md and docs/metrics.md from the code
	$(BIN)/python -m docs.make_cli_reference
	$(BIN)/python -m docs.make_metrics_reference

site: install ## the documentation as a site, build/site/index.html; warnings are errors
	rm -rf build/site
	$(BIN)/python -m sphinx -W --keep-going -q -E -d build/site-pages -c docs docs build/site

dist: install ## wheels and source distributions of what is committed, into dist/, the same bytes each time
	$(BIN)/python -m tools.make_dist

lock: install ## pin all dependencies anew, with hashes
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --upgrade setup.cfg --extra build -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --upgrade setup.cfg --all-extras -o requirements-dev.lock

lab: $(RUNS) ## walk the lab on a scratch database and show the evidence
	$(BIN)/python -m lab.walk

cluster: install ## kill, freeze and cut three nodes on PostgreSQL; a minute (needs haproxy)
	$(BIN)/python -m lab.cluster $(CLUSTER_ARGS)

bench: install ## measure beside workerd and stock APScheduler; about half an hour
	$(BIN)/python -m benchmarks $(BENCH_ARGS) --json docs/benchmark.json

bench-postgres: install ## measure on PostgreSQL, a server of ours or BENCH_ARGS="--database URL"
	$(BIN)/python -m benchmarks --only postgres $(BENCH_ARGS) --json docs/benchmark-postgres.json

bench-quick: install ## the same, small, in about two minutes
	$(BIN)/python -m benchmarks --quick

bench-full: install ## the same with a log of ten million events
	$(BIN)/python -m benchmarks --full --json docs/benchmark.json

verify: $(RUNS) ## check the log and all that is projected from it
	$(BIN)/reservation-expiry log verify

rebuild: $(RUNS) ## make read model and alarms follow from the log again
	$(BIN)/reservation-expiry log rebuild

replay: $(RUNS) ## take NAME's expiry path at NOW (Unix ms) twice
	$(BIN)/reservation-expiry log replay "$(NAME)" --now "$(NOW)" --times 2

clean: ## remove what was built and installed; never the data
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
