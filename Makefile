# Two commands for a newcomer: `make demo` and `make test`. Everything is installed into .venv; nothing needs root.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Three workers on two cores, since some tests wait for other processes; each has whole files, in the order of
# tests/conftest.py, and not those with most tests first.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all mutations soak lint types unit bench docs lock sbom browser database clean

demo: $(VENV)/.installed
	@rm -rf runs/demo
	$(BIN)/wardround demo --out runs/demo

# The three side by side; the environment first, since each of them would make it.
test: $(VENV)/.developing
	@$(MAKE) --no-print-directory -j 3 lint types unit

# All of it: every example, the crash sweep in full, long processes, programs compiled as users compile them.
test-all: lint types $(VENV)/.developing browser database
	WARDROUND_TESTS=all $(BIN)/pytest $(WORKERS)
	$(MAKE) mutations
	$(MAKE) soak

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.developing
	$(BIN)/mypy wardround benchmarks

unit: $(VENV)/.developing browser database
	$(BIN)/pytest $(WORKERS)

# Places made wrong on purpose, one at a time: the quick suite must notice each of them.
mutations: $(VENV)/.developing
	$(BIN)/python -m tests.mutations

# Real processes over mutual TLS: killed at every named point, at random for 200 rounds, timed, 1,000 rounds, and weeks long.
soak: $(VENV)/.developing
	for trial in sweep chaos recovery memory week; do $(BIN)/python -m tests.faults.soak $$trial || exit 1; done

docs: $(VENV)/.developing
	$(BIN)/python -m docs.make_reference

# What a deployed party installs, file by file with its hash, and the bill of materials made from it.
lock: $(VENV)/.developing
	$(BIN)/python requirements/lock.py lock
	$(MAKE) sbom

sbom: $(VENV)/.developing
	$(BIN)/python requirements/lock.py sbom

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.install
	$(BIN)/wardround bench

# Tests that look at pages use Chromium. Where it is missing and can be installed, it is; else they are skipped.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt-get update -qq >/dev/null 2>&1 \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null 2>&1; } \
	|| echo "No Chromium here and none could be installed: tests in a browser will be skipped."

# Tests of the SQL source start a PostgreSQL server of their own. Where its programs are missing and can be installed,
# they are; else these tests are skipped.
database:
	@command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt-get update -qq >/dev/null 2>&1 \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null 2>&1; } \
	|| echo "No PostgreSQL here and none could be installed: tests of the SQL source will be skipped."

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null 2>&1 && $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.developing: pyproject.toml $(VENV)/.installed
	$(PIP) -e ".[dev,torch,deploy,sql,tracking]"
	@touch $@

clean:
	rm -rf $(VENV) runs build dist *.egg-info
