# Set-up is a virtual environment held by constraints.txt (lab/set_up.sh); every target makes it first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILE :=
export PYTHON COMPILE

.PHONY: run test test-long test-full test-cluster test-arm check bench report reference screens site notebook selftest gpu wheel dist clean

run: $(INSTALLED)
	$(BIN)/shootout run

# The suite starts hundreds of processes, and each would compile what it imports: of 17,000 files fewer than a third. Elsewhere
# pip compiles all, since a race times how long a backend takes to load.
test test-long test-full test-cluster test-arm: export PYTHONDONTWRITEBYTECODE =
test test-long test-full test-cluster test-arm: COMPILE = --no-compile

# Pytest would load the plugins of all packages, and rewrite ours, which has one, for its `assert`: 2 s for each process.
PYTEST := $(BIN)/python -m pytest --disable-plugin-autoload -p xdist -p timeout
# A process of -n that dies ends the run: started anew, it waited for ever for tests that nobody handed out.
test: CHOSEN = not slow and not long
test-long: CHOSEN = long and not slow
test test-long: $(INSTALLED)
	$(PYTEST) -n 2 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -m "$(CHOSEN)"

test-full: $(INSTALLED)
	ODD_INPUTS=2000 $(BIN)/python -m pytest --ignore tests/arm

test-cluster: $(INSTALLED)  # a study on a real Ray cluster of three nodes, all on this machine, one of which is killed
	$(PYTEST) tests/fleet/test_ray_cluster.py

test-arm: $(INSTALLED)  # an ARM board, emulated (tests/arm): takes root, and Debian's debootstrap, qemu-user-static and openssh-server
	$(PYTEST) tests/arm

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m lab.words
	$(BIN)/python -m lab.ratchet

bench: $(INSTALLED)
	$(BIN)/python -m lab

report: $(INSTALLED)  # a page for each reference run, and the figure in the README
	mkdir -p build/report
	for run in $(patsubst %/journal.jsonl.gz,%,$(wildcard results/reference/*/journal.jsonl.gz)); do \
		$(BIN)/shootout report $$run -o build/report/$${run##*/}.html || exit 1; done
	$(BIN)/shootout report results/reference/shootout -o results/reference/shootout.svg

reference: $(INSTALLED)  # docs/reference/ and the support matrix, which the program writes; a test fails if they aren't current
	$(BIN)/python -m docs.site.reference

screens: $(INSTALLED)  # what commands print of runs that ship: as the tests keep it, and as the pages show it
	SCREENS=write $(BIN)/python -m pytest -q tests/report/test_screens.py
	$(BIN)/python -m docs.site.screens

# The documentation as a site: what it links to must be there. It needs no backend, so it has an environment of its own. With
# REPOSITORY=https://…, or git's origin where that is on the web, it links to the code as well.
SITE := $(VENV)-site
site: $(SITE)/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet
	@echo "build/site/index.html"

selftest: $(INSTALLED)
	$(BIN)/shootout selftest

notebook: $(INSTALLED)
	$(BIN)/python -m tests.docs.notebook $(if $(LIVE),--live)

gpu:  # what docs/evidence/claims.md needs a GPU for (docs/gpu.md), by PYTHON, which has shootout, torch and JAX; no environment is made
	@$(PYTHON) -m lab.gpu

wheel: $(INSTALLED)
	rm -rf build/lib  # it may hold files that are gone
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .

dist: $(INSTALLED)  # what is published: both files, checked and tried (lab/release.py); uploads nothing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group release
	$(BIN)/python -m lab.release

$(VENV)/.installed $(SITE)/.installed: pyproject.toml constraints.txt lab/set_up.sh $(wildcard backends/*/converter.txt backends/*/package.txt)
	@sh lab/set_up.sh $(@D) $(if $(filter $(SITE)/%,$@),site,dev)

clean:
	rm -rf --one-file-system $(VENV) $(SITE) build dist *.egg-info
