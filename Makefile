# On a fresh machine with Python 3.11 to 3.13 and make, two commands do everything:
#   make demo    installs fleetsim and runs the main job
#   make test    installs what the tests need and runs them
# Another interpreter, another folder: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# make differential: which vLLM to hold against, and how many random workloads from which seed on
VLLM ?= 0.32.0
CASES ?= 220
SEED ?= 0
VLLM_VENV := .venv-vllm
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip --disable-pip-version-check
VLLM_RUN := VLLM_CACHE_ROOT=$(CURDIR)/$(VLLM_VENV)/cache PYTHONPATH=$(VLLM_VENV)/vllm-$(VLLM) \
	$(VLLM_VENV)/bin/python -W ignore::FutureWarning

.PHONY: help demo test check-slow differential lint format types compiled docs renew-docs bench bench-hot clean

help:
	@echo "make demo        install, then simulate the sample trace on four H100s"
	@echo "make test        install, then run the tests (minutes)"
	@echo "make check-slow  the tests that take longer"
	@echo "make differential  our engine against the real vLLM, live, on the CPU (2 GB to install);"
	@echo "                 CASES=220 random workloads from SEED=0 on; VLLM=0.33.0 for that one"
	@echo "make lint        ruff: rules and format;  make format repairs"
	@echo "make types       build the wheel, install it elsewhere, check its content and its types"
	@echo "make compiled    compile what is hot (needs a C compiler) and install it in .venv-compiled"
	@echo "make docs        run the examples of README.md and docs/;"
	@echo "                 make renew-docs  writes what they print into the pages"
	@echo "make bench       speed, memory, and how both grow"
	@echo "make clean       remove what these commands made"

demo: $(VENV)/.installed
	rm -rf runs/demo
	$(BIN)/fleetsim run --out runs/demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --benchmark-disable

check-slow: $(VENV)/.installed-slow
	$(BIN)/python -m pytest -n $(WORKERS) --benchmark-disable -m slow

differential: $(VLLM_VENV)/.installed-$(VLLM)
	$(VLLM_RUN) tests/differential/fuzz.py --cases $(CASES) --seed $(SEED)
	$(VLLM_RUN) tests/differential/fuzz.py --cases $(CASES) --seed $(SEED) --lora
	$(VLLM_RUN) tests/differential/record.py --check
	$(VLLM_RUN) tests/differential/step_files.py
ifeq ($(VLLM),0.32.0)
	$(VLLM_RUN) tests/differential/planted_fault.py
	$(VLLM_RUN) tests/differential/speed.py
	$(VLLM_RUN) tests/differential/live.py
	$(VLLM_RUN) tests/differential/live.py --policy priority --long-prefill-token-threshold 48
	$(VLLM_RUN) tests/differential/live_steps.py
endif

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/python .ci/installed_package.py

compiled: $(BIN)/python
	$(BIN)/python .ci/compiled_package.py

docs: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/docs -m "slow or not slow"

renew-docs: $(VENV)/.installed-dev
	RENEW_DOCS=1 $(BIN)/python -m pytest tests/docs -k every_block

bench: bench-hot
	$(BIN)/python tests/benchmarks/speed.py
	$(BIN)/python tests/benchmarks/growth.py

bench-hot: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only --benchmark-max-time=0.5 \
		--benchmark-columns=median,iqr,ops

clean:
	rm -rf $(VENV) .venv-types .venv-compiled $(VLLM_VENV) build dist runs/demo fleetsim.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The installs are editable, so they are repeated only when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[dev]'
	touch $(VENV)/.installed $@

# The kernel tables (110 MB) from which the shipped profiles are made again.
$(VENV)/.installed-slow: $(VENV)/.installed-dev
	$(PIP) install --quiet --editable '.[dev,aic]'
	touch $@

# vLLM's CPU build on as little as its scheduler and engine need. The requirements say why so.
$(VLLM_VENV)/.installed-0.32.0: pyproject.toml $(wildcard tests/differential/requirements-*.txt)
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) install --quiet -r tests/differential/requirements-vllm.txt --editable .
	$(VLLM_PIP) install --quiet --no-deps -r tests/differential/requirements-vllm-nodeps.txt
	touch $@

# Another version stands before it on the path: of vLLM's GPU build, the scheduler runs anywhere.
$(VLLM_VENV)/.installed-%: $(VLLM_VENV)/.installed-0.32.0
	$(VLLM_PIP) install --quiet --no-deps --upgrade --target $(VLLM_VENV)/vllm-$* vllm==$*
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit(f"fleetsim needs Python 3.11 to 3.13, and $(PYTHON) is {v[0]}.{v[1]}; say which: make demo PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
