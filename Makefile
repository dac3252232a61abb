# KafkaLite. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
KUBECTL := .cache/kubectl/kubectl
HELM := .cache/helm/helm
MAVEN_JARS := .cache/spark-jars
JAVA_TOOLS := .cache/java-tools

# The first Python that is new enough, or PYTHON=… from the command line.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- installation ----------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@if [[ -z "$(PYTHON)" ]]; then \
		echo "KafkaLite needs Python 3.11 or newer; none of python3, python3.11 … python3.14 is. Install one (Debian 12 and Ubuntu 24.04: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
		exit 1; fi
	@echo "making $(VENV) with $$($(PYTHON) --version) ($(PYTHON))"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }

$(STAMP): constraints.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the packages of constraints.txt into $(VENV); this takes a few minutes"
	@$(PIP) install --require-hashes -r constraints.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: install
install: $(STAMP) ## Make .venv and install KafkaLite with everything it needs (nothing to do: no work)

$(SPARK_STAMP): constraints-spark.txt $(STAMP)
	@echo "installing PySpark into $(VENV) (400 MB)"
	@$(PIP) install --require-hashes -r constraints-spark.txt
	@touch $@

.PHONY: spark-venv
spark-venv: $(SPARK_STAMP) ## Add PySpark to .venv

.PHONY: lock
lock: $(STAMP) ## Write the hashed constraints files anew from pyproject.toml
	@[[ -x $(BIN)/uv ]] || $(PIP) install uv
	$(BIN)/uv pip compile pyproject.toml --extra test --generate-hashes --universal --python-version 3.11 -o constraints.txt --no-header --no-emit-index-url --quiet
	$(BIN)/uv pip compile pyproject.toml --extra spark --constraint constraints.txt --generate-hashes --universal --python-version 3.11 -o constraints-spark.txt --no-header --no-emit-index-url --no-annotate --quiet
	for image in broker operator; do $(BIN)/uv pip compile pyproject.toml --extra $$image --constraint constraints.txt --generate-hashes --universal --python-version 3.11 -o constraints-$$image.txt --no-header --no-emit-index-url --no-annotate --quiet; done

# -- the cluster of this machine -------------------------------------------------------------------------------------

.PHONY: up
up: $(STAMP) ## Start the control plane, the operator, three brokers and the quickstart topic
	@$(BIN)/kafkalite up

.PHONY: down
down: ## Stop the cluster and keep its data
	@if [[ -x $(BIN)/kafkalite ]]; then $(BIN)/kafkalite down; else tools/local_without_venv.sh down; fi

.PHONY: clean
clean: ## Stop the cluster and remove its data
	@if [[ -x $(BIN)/kafkalite ]]; then $(BIN)/kafkalite clean; else tools/local_without_venv.sh clean; fi

.PHONY: status
status: $(STAMP) ## Show processes, brokers and partitions
	@$(BIN)/kafkalite status

.PHONY: demo
demo: up ## Produce 336,776 real flights, kill a leader halfway, consume everything, judge
	@$(BIN)/python examples/flights/demo.py

$(MAVEN_JARS)/.complete: spark_app/fetch_jars.sh
	@spark_app/fetch_jars.sh $(MAVEN_JARS)
	@touch $@

.PHONY: flights-there
flights-there: up ## Ask whether the flights topic has records, as spark-demo does before it installs PySpark
	@port=$${KAFKALITE_PORT:-9092}; $(BIN)/python examples/flights/there.py 127.0.0.1:$$port

# What costs nothing is asked first, before 400 MB of PySpark are installed.
.PHONY: spark-demo
spark-demo: flights-there $(SPARK_STAMP) $(MAVEN_JARS)/.complete ## Read the flights topic with Spark and prove it whole (Java 17, Maven)
	@port=$${KAFKALITE_PORT:-9092}; PYTHONPATH=spark_app $(BIN)/python -m kafkalite_spark flights \
		--bootstrap 127.0.0.1:$$port,127.0.0.1:$$((port + 1)),127.0.0.1:$$((port + 2))

.PHONY: bench
bench: $(STAMP) ## Compare with Apache Kafka (Java 17, Maven); ARGS="--quick" for three minutes instead of 40
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: groups-proof
groups-proof: $(STAMP) ## Kill every broker in turn for 10 minutes under a consumer group whose members come and go, and judge; ARGS="--minutes 1"
	@$(BIN)/python bench/groups.py $(ARGS)

.PHONY: failover-report
failover-report: $(STAMP) ## Measure how long clients wait when brokers fail and write docs/failover.md (two hours); ARGS="--n 5 --api-minutes 1"; CONTEXT=kind ARGS="--n 3" for docs/failover-kind.md
	@$(BIN)/python -m bench.failover_$(if $(filter kind,$(CONTEXT)),kind,report) $(ARGS)

.PHONY: bench-controller
bench-controller: $(STAMP) ## Measure the operator with 1,000 topics on a real API server and write docs/scale.md; ARGS="--topics 100" for a short one that writes nothing
	@$(BIN)/python -m bench.controller $(ARGS)

.PHONY: simulate
simulate: $(STAMP) ## Histories of the simulated cluster; SEEDS=0:10000 JOBS=2
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),0:10000) --jobs $(or $(JOBS),2) $(ARGS)

.PHONY: simulate-ledger
simulate-ledger: $(STAMP) ## For HOURS=1, histories of seeds that the ledger of this program does not have yet, on all cores
	@$(BIN)/python -m tests.simulation --hours $(or $(HOURS),1) $(ARGS)

.PHONY: simulate-summary
simulate-summary: $(STAMP) ## Add up the ledger of the simulation for the present program
	@$(BIN)/python -m tests.simulation --summary

.PHONY: proof-small
proof-small: $(STAMP) ## Search small clusters, every order of events, breadth first up to 650,000 states of each configuration: 5 million at least
	@$(BIN)/python -m tests.search --proof small $(ARGS)

.PHONY: proof
proof: $(STAMP) ## The same within wider bounds, up to 5.5 million of each: 50 million at least (12 to 40 minutes, below 8 GB)
	@$(BIN)/python -m tests.search --proof full $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Break each rule of the core in turn and have it found; ARGS="--only M06,M07"; ARGS=--table writes docs/proof.md and the table of docs/exhaustive-search.md of what was found
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: chaos
chaos: $(STAMP) ## Harm real processes for HOURS=1 and add every run to the ledger (Linux, root, nftables, e2fsprogs, iproute2, a C compiler); CONTEXT=kind: pods and nodes
	@KAFKALITE_E2E_PATIENCE=$${KAFKALITE_E2E_PATIENCE:-2} $(BIN)/python -m tests.chaos$(if $(filter kind,$(CONTEXT)),.kind) --hours $(or $(HOURS),1) $(ARGS)

.PHONY: chaos-summary
chaos-summary: $(STAMP) ## Add up the ledger of chaos, per hash of the program
	@$(BIN)/python -m tests.chaos --summary

.PHONY: group-matrix
group-matrix: $(STAMP) java-tools ## Every client in groups of one to six, members and coordinators killed; ARGS="--cells 10" (Java 17, Maven, kcat)
	@$(BIN)/python -m tests.integration.group_matrix $(ARGS)

# -- checks ----------------------------------------------------------------------------------------------------------

.PHONY: lint
lint: $(STAMP) ## ruff, mypy, import-linter, and what keeps the repository tidy
	@failed=0; for check in "ruff check" "ruff format --check" mypy lint-imports "pytest -q tests/test_tidy.py"; do \
		echo "--- $$check"; $(BIN)/$$check || failed=1; done; exit $$failed

.PHONY: format
format: $(STAMP) ## Put the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(KUBECTL): $(wildcard tools/kubectl/*) tools/go.sh
	@tools/kubectl/build.sh >/dev/null
	@touch $@

.PHONY: kubectl
kubectl: $(KUBECTL) ## Build kubectl alone (a few minutes; Go, or the one that it fetches by pip)

.PHONY: kubernetes
kubernetes: ## Build Kubernetes and etcd, which the tests use (once; 8 to 12 minutes; Go, or the one that it fetches by pip)
	@tools/kubernetes/build.sh >/dev/null

.PHONY: kind-up
kind-up: $(STAMP) ## Start a Kubernetes cluster of four nodes with our images and print its KUBECONFIG (root, or a Docker that runs; the first time a quarter of an hour); IMAGES=no; BASE_IMAGE=python:3.12-slim
	@$(BIN)/python -m tests.cluster kind up $(if $(filter no,$(IMAGES)),--no-images) $(if $(BASE_IMAGE),--base $(BASE_IMAGE)) $(ARGS)

.PHONY: kind-down
kind-down: $(STAMP) ## Stop it and restore the machine; .cache stays, and packages, which are named
	@$(BIN)/python -m tests.cluster kind down

.PHONY: images
images: $(STAMP) ## Build the images of broker, operator and the client of the tests anew, and load them when the cluster runs; BASE_IMAGE=python:3.12-slim
	@$(BIN)/python -m tests.cluster images --client $(if $(BASE_IMAGE),--base $(BASE_IMAGE)) $(ARGS)

.PHONY: spark-images
spark-images: $(STAMP) ## Build the images of our Spark jobs and of the spark-operator, and load them; BASE_IMAGE=apache/spark:4.0.0
	@$(BIN)/python -m tests.cluster images --spark $(if $(BASE_IMAGE),--base $(BASE_IMAGE)) $(ARGS)

.PHONY: e2e
e2e: $(STAMP) ## Test the chart on the cluster that KUBECONFIG names, or on one of its own: pods, nodes, API server harmed under load
	@tools/test_tiers.sh e2e

$(HELM): $(wildcard tools/helm/*) tools/go.sh
	@tools/helm/build.sh >/dev/null
	@touch $@

.PHONY: helm
helm: $(HELM) ## Build the helm that the tests use (a few minutes; Go, or the one that it fetches by pip)

.PHONY: chart
chart: $(STAMP) $(HELM) ## Write anew what belongs to the chart: copies of crds/, schema of values, dashboard, helm/manifests, docs
	@$(BIN)/python -m tools.chart $(ARGS)

.PHONY: java-tools
java-tools: ## Fetch Apache Kafka's command-line tools, which the tests use (Java 17, Maven)
	@tools/java/fetch.sh $(JAVA_TOOLS)

.PHONY: test
test: $(STAMP) ## Run everything that CI runs; TIERS="unit property" for some of it
	@tools/test_tiers.sh $(TIERS)
