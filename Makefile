# Each target sets up what it needs first; `make` alone lists the targets.
# Choose a Python with PYTHON=python3.12 (3.11 or later).

PYTHON = python3
PROFILE = quick
BUDGET =
ARGS =

RUN := .venv/bin/python

.PHONY: help setup bench compare test lint

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /make \1;/p' Makefile | sed 's/;/	/' | expand -t 14

setup: .venv/setup.done ## make .venv with all that the suite uses (make -B setup: try again what was missing)

bench: .venv/setup.done ## measure the tips (PROFILE=smoke|quick|full BUDGET=8m ARGS="--tips amp")
	$(RUN) -m bench run --profile $(PROFILE) $(if $(BUDGET),--budget $(BUDGET)) $(ARGS)

compare: .venv/setup.done ## compare two runs (A=… B=… run folders or effects.csv ARGS="--fail-if-slower 5%")
	$(RUN) -m bench compare $(A) $(B) $(ARGS)

test: .venv/dev.done ## run the tests of the suite itself
	$(RUN) -m pytest -n 2 --dist loadfile -rs tests

lint: .venv/dev.done ## check style, types and layers
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) .venv/bin/lint-imports

.venv/setup.done: pyproject.toml scripts/setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo '$(PYTHON) is missing or older than 3.11; try: make setup PYTHON=python3.12'; exit 1; }
	@$(PYTHON) scripts/setup.py

.venv/dev.done: .venv/setup.done
	$(RUN) -m pip install --quiet 'pip>=25.1'
	$(RUN) -m pip install --quiet --group dev
	@touch $@
