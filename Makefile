# Set-up is a virtual environment held by constraints.txt; every target makes it first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The editable install is a tree of links (so that type checkers see it), which knows only the files there were when it
# was made. So its stamp carries a checksum of the file list.
FILES := $(sort $(wildcard harness/*.py harness/studies/*.toml backends/*.py models/*.py))
STAMP := $(VENV)/.installed-$(shell echo $(FILES) | cksum | cut -d' ' -f1)

.PHONY: run test test-full check bench selftest wheel clean

run: $(STAMP)
	$(BIN)/shootout run

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-full: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m tests.bench

selftest: $(STAMP)
	$(BIN)/shootout selftest

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shootout needs Python 3.11 or newer; run: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' --config-settings editable_mode=strict
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
