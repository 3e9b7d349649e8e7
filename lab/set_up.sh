#!/bin/sh
# set_up.sh FOLDER EXTRA: make a virtual environment with this package and the packages of one extra, in the versions of
# constraints.txt. PYTHON makes it; COMPILE holds further words for pip.
set -e
folder=$1 extra=$2 bin=$1/bin
${PYTHON:=python3} -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shootout needs Python 3.11 or newer; run: make PYTHON=python3.11")'

install() { "$bin/python" -m pip install --quiet --disable-pip-version-check $COMPILE "$@"; }

# The pip that Python 3.11 brings looks at every wheel ever released of each package, 29 s of CPU time for ours; this 10.
newer_pip=pip==26.3

# It is made without a pip first: where a system has Python's `ensurepip` in a package of its own (python3-venv), PYTHON's pip
# can still fill it.
"$bin/python" -c 'import pip' 2>/dev/null \
	|| { "$PYTHON" -m venv --without-pip "$folder" && "$PYTHON" -m pip --python "$bin/python" install --quiet $newer_pip; } \
	|| "$PYTHON" -m venv "$folder"
install $newer_pip || echo "$newer_pip can't be installed here: the set-up takes longer"

# Pip unpacks 34,000 files one after the other. So a new environment gets most of them from four pips side by side, which ask
# for nothing's demands; the one after them does, and brings what failed or says why it can't be had.
if [ "$extra" = dev ] && ! [ -e "$folder/.installed" ]; then
	echo torch jax networkx ncnn ruff tract hf-xet \
		transformers sympy pandas jaxlib pnnx ai-edge-litert tokenizers \
		mypy onnx scikit-learn torchao iree-base-compiler iree-base-runtime vl-convert-python \
		scipy numpy openvino pyarrow tensorrt_rtx_cu13_libs onnxruntime ray \
		| xargs -P 4 -n 7 "$bin/python" -m pip install --quiet --disable-pip-version-check $COMPILE \
			--no-deps --no-warn-conflicts -c constraints.txt 2>/dev/null || true
fi
install -c constraints.txt -e ".[$extra]"

# What demands packages that it doesn't need here, or that exclude others of ours: see there.
[ "$extra" != dev ] || for one in backends/_litert/converter.txt backends/_executorch/package.txt; do
	install --no-deps -r $one || echo "$one can't be installed here: a run skips what needs it" &
done
wait
touch "$folder/.installed"
