# Every target makes what it lacks first: virtual environment, packages, Java, Redis, jars.
PY := python3
BIN := .venv/bin
TEST_STEPS := python java redis jars registry archive browser sam lint localstack
PYTEST_ARGS ?=
# Two keep two cores busy for three quarters of the time. Each takes up to 4 GB, with its servers.
WORKERS ?= $(shell $(PY) -c 'import os; print(3 if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 15e9 else 2)')
KEYLANE_ARGS ?=
BENCH_ARGS ?=
OLD ?= HEAD~1
NEW ?= HEAD
BENCH ?= lookup
ROUNDS ?= 3
TORTURE_ARGS ?=
COMPAT_ARGS ?=
MODEL_ARGS ?=
UPGRADE_ARGS ?=
SOAK_ARGS ?=
MINUTES ?= 60
FIRE ?=
RELEASE_ARGS ?=
N ?= 200
BUSY ?= 2
SEED ?=
SPARK ?=
SPARK_TESTS = -m 'cluster or not cluster' $(PYTEST_ARGS) tests/unit/spark tests/integration/cluster/test_spark_submit.py \
	$(addprefix tests/integration/job/test_,job.py views.py transforms.py engine_ended.py polling.py spark_bounds.py log_reader.py)

# Where this is set, as in many containers, each process of pytest would rewrite and compile all tests again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-python setup-check setup-sam setup-tests setup-localstack demo test test-profile test-steady unit integration e2e
.PHONY: containers long databases spark-cluster spark-versions check example docs setup-docs setup-typescript
.PHONY: lint-infra lint-code audit generate release layer layer-requirements image-requirements jar-checksums sizing package-job build
.PHONY: up down status deploy-local clean soak fuzz-records fuzz-requests live-copies corpora torture torture-mutants model model-mutants under-fire upgrade compat
.PHONY: bench bench-lookup bench-ingest bench-events bench-freshness bench-coldstart bench-read bench-write bench-wait bench-serve bench-idle bench-scale bench-peers bench-migrate bench-leaders bench-find bench-memory bench-snapshot bench-change bench-compare

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Make what the other targets need
	@$(PY) local/bootstrap.py

setup-python:
	@$(PY) local/bootstrap.py python

demo: setup  ## Real flights into Kafka, and their answers over HTTP (KEYLANE_ARGS=--once tears it down)
	@$(BIN)/keylane demo $(KEYLANE_ARGS)

example: setup-typescript  ## A departures board in the browser, live, for two customers (Ctrl-C ends it; examples/flights-board)
	@cd examples/flights-board && $(abspath $(BIN))/keylane up
	@cd examples/flights-board && $(abspath $(BIN))/python board.py

setup-check:
	@$(PY) local/bootstrap.py python sam lint

setup-sam:
	@$(PY) local/bootstrap.py python sam

setup-typescript: setup
	@$(PY) local/bootstrap.py typescript

setup-docs:
	@$(PY) local/bootstrap.py python docs

setup-tests:
	@$(PY) local/bootstrap.py $(TEST_STEPS)

setup-localstack: setup
	@$(PY) local/bootstrap.py localstack

test: setup-tests  ## All tests, on real servers of their own, in two or three processes side by side (WORKERS=0: in one)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder \
		--durations 40 --durations-min 5 $(PYTEST_ARGS)

test-profile: setup-tests  ## `make test` with a table of its CPU seconds, by folder and by what is started
	@$(MAKE) --no-print-directory test PYTEST_ARGS="--cpu-profile=build/cpu-profile $(PYTEST_ARGS)"

test-steady: N = 6
test-steady: setup-tests  ## `make test` N=6 times in random orders, beside BUSY=2 busy processes: which tests fail, and how often (SEED, PYTEST_ARGS)
	@$(BIN)/python -m tests.steady -n $(N) --busy $(BUSY) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) -- $(PYTEST_ARGS)

unit: setup-python  ## The tests that need no server (about a minute)
	@$(BIN)/python -m pytest -n $(WORKERS) tests/unit local/localstack-process-executor/tests $(PYTEST_ARGS)

integration: setup-tests  ## The tests on real servers: contracts, lanes, job, functions, local stack
	@$(BIN)/python -m pytest tests/contract tests/integration $(PYTEST_ARGS)

e2e: setup-tests  ## The tests over HTTP, on the whole stack
	@$(BIN)/python -m pytest tests/e2e $(PYTEST_ARGS)

containers: setup-check  ## The tests in containers: images, compose.yaml, sam local; needs a Docker engine
	@$(BIN)/python -m pytest -m docker tests/docker $(PYTEST_ARGS)

spark-cluster: setup-tests  ## The tests on a Spark cluster: a master, two workers, executors that are killed; the package by spark-submit (20 minutes)
	@$(BIN)/python -m pytest -m cluster tests/integration/cluster $(PYTEST_ARGS)

spark-versions: setup-tests  ## The job's tests and its package by spark-submit, on Spark 4.0.2 and on 4.2.0 (40 minutes)
	@$(PY) local/bootstrap.py older_jars older_spark
	@# PySpark 4.0 leaves sockets to the garbage collector.
	@"$${KEYLANE_TOOLS:-.keylane-tools}/spark-4.0.2/bin/python" -m pytest -W ignore::ResourceWarning $(SPARK_TESTS)
	@$(BIN)/python -m pytest $(SPARK_TESTS)

databases: setup-tests  ## PostgreSQL and Debezium's connector: rows over HTTP are those of SELECT (SEED, STATEMENTS=10000; 4 minutes; needs PostgreSQL)
	@$(PY) local/bootstrap.py databases
	@$(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -m databases tests/databases $(PYTEST_ARGS)

long: setup-tests  ## The tests of failures that take half a minute each, which `make test` leaves out (40 minutes)
	@$(PY) local/bootstrap.py typescript generators
	@$(BIN)/python -m pytest -m long tests $(PYTEST_ARGS)

compat: setup-tests  ## REST Proxy's documented requests and real clients (COMPAT_ARGS=--lambda, --localstack, or '--url URL')
	@$(BIN)/python -m tests.compat $(COMPAT_ARGS)

check: setup-check  ## Lint, format, types, import rules, templates, advisories, two side by side
	@$(MAKE) --no-print-directory -j2 lint-infra lint-code audit

lint-code: setup-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lint-infra: setup-check  ## cfn-lint, checkov, parliament on all combinations of parameters; Kubernetes' schemas
	$(BIN)/python -m keylane_build.templates

audit: setup-check  ## SBOMs of layer, job and images into build/sbom, and pip-audit, where its advisories can be reached
	$(BIN)/python -m keylane_build.audit

generate: setup-python  ## Write what is made from the code: OpenAPI, the template's routes, events, settings, errors, monitoring, sizing
	@$(BIN)/python -m keylane_build.openapi
	@$(BIN)/python -m keylane_build.gateway
	@$(BIN)/python -m tests.e2e.examples
	@$(BIN)/python -m keylane_build.console_reference
	@$(BIN)/python -m keylane_build.settings
	@$(BIN)/python -m keylane_build.errors
	@$(BIN)/python -m keylane_build.typescript_problems
	@$(BIN)/python -m keylane_build.monitoring
	@$(BIN)/python -m keylane_build.sizing --document

image-requirements: setup-python  ## Write the images' packages, by hash, from pyproject.toml
	@$(BIN)/python -m keylane_build.image_requirements

docs: setup-docs  ## The documents as a site with search, into build/site/html; a broken link fails it
	@$(BIN)/python -m keylane_build.site

jar-checksums:  ## Write infra/jars.sha256, after a change of pom.xml or tests/registry/pom.xml
	@$(PY) local/bootstrap.py checksums

layer-requirements: setup-python
	@$(BIN)/python -m keylane_build.layer

sizing: setup-python
	@$(BIN)/python -m keylane_build.sizing --document

release: setup  ## All that a release has, into dist/: built, checked, installed and used outside the checkout
	@$(PY) local/bootstrap.py release typescript
	@$(BIN)/python -m keylane_build.release $(RELEASE_ARGS)

package-job: setup  ## The job for a Spark cluster, into build/job (SPARK=4.0.2: for that of EMR Serverless)
	@$(if $(SPARK),$(PY) local/bootstrap.py older_jars)
	@$(BIN)/python -m keylane_build.job_package $(if $(SPARK),--spark $(SPARK))

layer: setup-python  ## Build the layer into build/layer (KEYLANE_ARCHITECTURE, KEYLANE_RUNTIME)
	@$(BIN)/python layers/keylane/build_layer.py --to build/layer

build: setup-sam  ## sam build: the layer for KEYLANE_ARCHITECTURE and KEYLANE_RUNTIME, the template for sam deploy
	@PATH="$(CURDIR)/$(BIN):$$PATH" "$${KEYLANE_TOOLS:-.keylane-tools}/sam/bin/sam" build
	@$(BIN)/python -m keylane_build.built_template .aws-sam/build

up: setup  ## Start the local stack
	@$(BIN)/keylane up $(KEYLANE_ARGS)

deploy-local: setup-localstack  ## Start LocalStack beside the local stack, deploy template.yaml to it, print its URL
	@$(BIN)/keylane up --localstack $(KEYLANE_ARGS)

down:  ## Stop the local stack
	@$(BIN)/keylane down $(KEYLANE_ARGS)

status:  ## Show the local stack's parts
	@$(BIN)/keylane status $(KEYLANE_ARGS)

bench: setup  ## Every benchmark beside its reference and its aim, in rounds (15 minutes; BENCH_ARGS='--rounds 3')
	@$(BIN)/python tests/bench/suite.py $(BENCH_ARGS)

bench-lookup bench-read bench-ingest bench-events bench-freshness bench-coldstart bench-wait bench-write bench-serve bench-idle bench-scale bench-peers bench-migrate bench-leaders bench-find bench-memory bench-snapshot bench-change bench-rights: bench-%: setup
	@$(BIN)/python tests/bench/bench_$*.py $(BENCH_ARGS)

bench-compare: setup  ## Two commits in turns (OLD=v1 NEW=HEAD BENCH=lookup ROUNDS=3)
	@$(BIN)/python tests/bench/compare.py $(OLD) $(NEW) $(BENCH) --rounds $(ROUNDS) $(BENCH_ARGS)

torture: setup  ## Random trouble on real servers against a fold of the log (N=200 SEED=random; N=1 SEED=s replays)
	@$(BIN)/python -m tests.torture -n $(N) $(if $(SEED),--seed $(SEED)) $(TORTURE_ARGS)

torture-mutants: setup  ## Remove each guard in turn: the torture must fail
	@$(BIN)/python -m tests.torture.mutants $(TORTURE_ARGS)

soak: setup  ## A steady load for MINUTES=60: no wrong read, and no process that grows (SOAK_ARGS='--to FOLDER')
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(SOAK_ARGS)

fuzz-records: MINUTES = 10
fuzz-records: setup  ## Records of random bytes and metadata for a real job for MINUTES=10 (SEED=s replays)
	@$(BIN)/python -m tests.records --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz-requests: MINUTES = 30
fuzz-requests: setup-tests  ## Changed requests of every route for the server and the functions for MINUTES=30 (SEED=s repeats)
	@$(BIN)/python -m tests.requests --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

live-copies: N = 50
live-copies: setup-tests  ## Both clients' live copies through N=50 random schedules of failures (SEED=1; 12 minutes)
	@SCHEDULES=$(N) $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest tests/integration/server/test_live_copy_schedules.py $(PYTEST_ARGS)

corpora: setup  ## Thousands of public schemas (JSON Schema, .proto, Avro) by us and by other libraries: what differs, beside what is known
	@$(BIN)/python -m tests.corpora

under-fire: setup-tests  ## The server at twice its capacity, its processes killed, what is behind it hanging (FIRE='overload dns-hangs')
	@$(BIN)/python -m tests.fire $(FIRE)

model: setup  ## Every state that a few steps of the protocol can reach, on a real Redis (MODEL_ARGS="--steps 6 --faults 2")
	@$(BIN)/python -m tests.model $(MODEL_ARGS)

model-mutants: setup  ## Remove each guard in turn: the model must fail
	@$(BIN)/python -m tests.model.mutants $(MODEL_ARGS)

upgrade: setup  ## An upgrade and a rollback while writers and readers of both versions go on (OLD=COMMIT)
	@$(BIN)/python -m tests.upgrade --old $(OLD) $(UPGRADE_ARGS)

clean:  ## Stop the local stack; delete its data and everything that set-up and tools made
	@if [ -x $(BIN)/keylane ] && [ -d .keylane ]; then $(BIN)/keylane down --wipe; fi
	rm -rf local/localstack-process-executor/build local/localstack-process-executor/*.egg-info
	rm -rf .keylane .keylane-tools .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
