# Every target makes what it needs: `make walk` and `make test` work on a fresh clone, `make` says what there is.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
MEGATRON := megatron-core==0.16.1
# Without building its kernels, and without dependencies: torch is there already.
DEEPSPEED := deepspeed==0.19.8
DEEPSPEED_NEEDS := 'setuptools>=71' einops hjson msgpack ninja psutil py-cpuinfo
DEBIAN := tshark tcpdump iproute2 chromium

.DEFAULT_GOAL := help
.PHONY: help walk test test-fast test-slow lint bench docs picture clean

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1@\2/' | column -t -s @

walk: $(VENV)/.installed ## Set everything up and take the walk.
	@$(BIN)/tokenwire walk

test: $(VENV)/.developed debian lint ## Set everything up, then every check and every test.
	$(BIN)/python -m pytest -q -n $(WORKERS)

test-fast: $(VENV)/.developed ## The tests that take less than a second each.
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not torch and not network and not browser"

test-slow: $(VENV)/.developed debian ## The long tests alone.
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or torch or network or browser"

lint: $(VENV)/.developed ## Style, types, and imports that follow the walk.
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.developed ## How fast: ratios to the limits.
	$(BIN)/python benchmarks/walk.py

docs: $(VENV)/.developed ## Build the book into site/: every number computed, nothing fetched.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict

picture: $(VENV)/.developed ## Draw docs/walk.svg from a real walk.
	$(BIN)/python docs/picture.py

clean: ## Remove what the other targets made.
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is made after its step went through, and made again when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.developed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev,measure]'
	$(BIN)/python -m pip install -q --no-deps '$(MEGATRON)'
	$(BIN)/python -m pip install -q $(DEEPSPEED_NEEDS)
	DS_BUILD_OPS=0 $(BIN)/python -m pip install -q --no-deps --no-build-isolation '$(DEEPSPEED)'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tokenwire needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; \
	  else echo "this Python makes no virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)

# Captures are checked by other programs. Where those cannot be had, their tests are skipped, and pytest counts them.
.PHONY: debian
debian:
	@command -v tshark >/dev/null && command -v tcpdump >/dev/null && command -v ip >/dev/null && command -v chromium >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN); } >&2 \
	  || echo "$(DEBIAN): not all could be installed; the tests that need them are skipped" >&2; \
	else echo "$(DEBIAN): not all are here; the tests that need them are skipped" >&2; fi
