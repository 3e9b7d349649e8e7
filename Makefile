# Set-up is a virtual environment held by constraints.txt; every target makes it first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COMPILE :=

# The editable install is a tree of links (so that type checkers see it), which knows only the files there were when it
# was made. So its stamp carries a checksum of the file list.
FILES := $(sort $(wildcard harness/*.py harness/*/*.py harness/*/*/*.py harness/*/*.html harness/studies/*.toml backends/*.py backends/*/*.py backends/*/*.[pt]* models/*.py models/*/*.py))
STAMP := $(VENV)/.installed-$(shell echo $(FILES) | cksum | cut -d' ' -f1)

# A GPU machine's campaign (docs/gpu.md) runs under PYTHON, which has torch and JAX. OUT counts on the command line only.
GPU_MINUTES ?= 20
GPU_PYTHON ?= 3.12
GPU_OUT = $(if $(findstring command,$(origin OUT)),$(OUT))
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shootout needs Python 3.11 or newer; run: make PYTHON=python3.11")'

# What demands packages that it doesn't need here, or that exclude others of ours: see there.
APART := backends/_litert/converter.txt backends/_executorch/package.txt

# The pip that Python 3.11 brings looks at every wheel ever released of each package, 29 s of CPU time for ours; this 10.
PIP := pip==26.3
INSTALL = install --quiet --disable-pip-version-check $(COMPILE)

# Pip unpacks 34,000 files one after the other. So a new environment gets most of them from four pips side by side, which ask
# for nothing's demands; the one after them does, and brings what failed or says why it can't be had.
LARGEST := torch jax networkx ncnn ruff tract hf-xet \
	transformers sympy pandas jaxlib pnnx ai-edge-litert tokenizers \
	mypy onnx scikit-learn torchao iree-base-compiler iree-base-runtime vl-convert-python \
	scipy numpy openvino pyarrow tensorrt_rtx_cu13_libs onnxruntime ray

# $(call environment,FOLDER,OPTIONS): a virtual environment with the pip of ours. It is made without one first: where a system
# has Python's `ensurepip` in a package of its own (python3-venv), PYTHON's pip can still fill it.
define environment
{ $(PYTHON) -m venv $(2) --without-pip $(1) && $(PYTHON) -m pip --python $(1)/bin/python $(INSTALL) $(PIP); } \
	|| $(PYTHON) -m venv $(2) $(1)
endef

.PHONY: run test test-long test-full test-cluster test-arm check bench report reference site notebook selftest gpu gpu-wheels wheel dist clean

run: $(STAMP)
	$(BIN)/shootout run

test test-long test-full test-cluster test-arm: export PYTHONDONTWRITEBYTECODE =
# The suite starts hundreds of processes, and each would compile what it imports.

test test-long test-full test-cluster test-arm: COMPILE = --no-compile
# Of 17,000 files the suite imports fewer than a third, and keeps their bytecode. Elsewhere pip compiles all, since a race
# times how long a backend takes to load.

# Pytest would load the plugins of all packages, and rewrite ours, which has one, for its `assert`: 2 s for each process.
PLUGINS := --disable-plugin-autoload -p xdist -p timeout

test: CHOSEN = not slow and not long
test-long: CHOSEN = long and not slow

test test-long: $(STAMP)
	$(BIN)/python -m pytest $(PLUGINS) -n 2 --dist loadfile --no-loadscope-reorder -m "$(CHOSEN)"

test-full: $(STAMP)
	ODD_INPUTS=2000 $(BIN)/python -m pytest --ignore tests/arm

# A study on a real Ray cluster of three nodes, all on this machine, one of which is killed.
test-cluster: $(STAMP)
	$(BIN)/python -m pytest $(PLUGINS) tests/fleet/test_ray_cluster.py

# An ARM board, emulated here and reached by ssh: what runs there is proven, and never timed. It takes root, and Debian's
# packages debootstrap, qemu-user-static and openssh-server; the first time it makes the board, in build/arm.
test-arm: $(STAMP)
	$(BIN)/python -m pytest $(PLUGINS) tests/arm

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m lab.words

bench: $(STAMP)
	$(BIN)/python -m lab

# A page for each reference run, and the figure in the README.
report: $(STAMP)
	mkdir -p build/report
	for run in $(patsubst %/journal.jsonl.gz,%,$(wildcard results/reference/*/journal.jsonl.gz)); do \
		$(BIN)/shootout report $$run -o build/report/$${run##*/}.html || exit 1; done
	$(BIN)/shootout report results/reference/shootout -o results/reference/shootout.svg

# The pages that the program writes about itself: docs/reference/, and the support matrix in docs/runtimes/README.md. They are
# kept, so that GitHub shows them too; a test fails if they are not current.
reference: $(STAMP)
	$(BIN)/python -m docs.site.reference

# The documentation as a site, in build/site: what it links to must be there. It needs no backend, but what draws figures, so
# it has an environment of its own. That one's install has no tree of links: it would replace the one of $(VENV).
# With REPOSITORY=https://…, or git's origin where that is on the web, the site links to the code as well.
SITE := $(VENV)-site

site: $(SITE)/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet
	@echo "build/site/index.html"

$(SITE)/.installed: pyproject.toml constraints.txt
	@$(NEW_ENOUGH)
	$(call environment,$(SITE),--clear)
	$(SITE)/bin/python -m pip $(INSTALL) $(PIP) || echo "$(PIP) can't be installed here: the set-up takes longer"
	$(SITE)/bin/python -m pip $(INSTALL) -c constraints.txt -e '.[site]'
	@touch $@

selftest: $(STAMP)
	$(BIN)/shootout selftest

notebook: $(STAMP)
	$(BIN)/python -m tests.docs.notebook $(if $(LIVE),--live)

gpu:
	@$(NEW_ENOUGH)
	@$(PYTHON) -P lab/gpu.py --minutes '$(GPU_MINUTES)' --wheels '$(WHEELS)' --out '$(GPU_OUT)' $(if $(DRY),--dry-run)

# What a GPU machine is likely to lack: first what nothing works without. Its own builds stay: torch, JAX, NumPy, CUDA.
GPU_LACKS := setuptools pydantic pydantic-core annotated-types typing-inspection typing-extensions archspec \
	typer annotated-doc shellingham nvidia-ml-py \
	openvino openvino-telemetry nncf pydot tabulate torchao torchax pytest pytest-timeout pluggy iniconfig \
	cuda-bindings cuda-pathfinder tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs
GPU_PLATFORMS := $(foreach minor,34 31 28 27 24 17 12,manylinux_2_$(minor)_x86_64) manylinux2014_x86_64
GPU_WHEELS = $(or $(WHEELS),build/gpu/wheels)

gpu-wheels:
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -c constraints.txt \
		--implementation cp --python-version $(GPU_PYTHON) $(addprefix --platform ,$(GPU_PLATFORMS)) \
		-d '$(GPU_WHEELS)' $(GPU_LACKS)
	$(if $(CUT),cd '$(GPU_WHEELS)' && find . -name '*.whl' -size +'$(CUT)' -exec split -d -b '$(CUT)' {} {}.part \; -delete)
	ls -sh '$(GPU_WHEELS)'

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .

# What is published: both files, checked and tried (lab/release.py). Uploads nothing.
dist: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group release
	$(BIN)/python -m lab.release

$(STAMP): pyproject.toml constraints.txt $(APART)
	@$(NEW_ENOUGH)
	$(BIN)/python -c 'import pip' 2>/dev/null \
		|| $(call environment,$(VENV))
	$(BIN)/python -m pip $(INSTALL) $(PIP) || echo "$(PIP) can't be installed here: the set-up takes longer"
	ls $(VENV)/.installed-* >/dev/null 2>&1 || echo $(LARGEST) \
		| xargs -P 4 -n 7 $(BIN)/python -m pip $(INSTALL) --no-deps --no-warn-conflicts -c constraints.txt 2>/dev/null || true
	$(BIN)/python -m pip $(INSTALL) -c constraints.txt -e '.[dev]' --config-settings editable_mode=strict
	for one in $(APART); do $(BIN)/python -m pip $(INSTALL) --no-deps -r $$one \
		|| echo "$$one can't be installed here: a run skips what needs it" & done; wait
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf --one-file-system $(VENV) $(SITE) build dist *.egg-info
