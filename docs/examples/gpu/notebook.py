"""The cells of docs/examples/gpu/notebook.ipynb, which `make notebook` makes: see tests/docs/notebook.py."""

# %% [markdown]
# # Measure on a GPU of Colab or Kaggle
#
# This notebook installs shootout, runs its GPU campaign within a given time, and ends with one archive to download.
#
# 1. Choose a GPU. Colab: *Runtime, Change runtime type, T4 GPU*. Kaggle: *Settings, Accelerator, GPU T4 x2*, and
#    *Internet on*. CUDA 13 has no code for a P100.
# 2. Upload the wheel that `make wheel` makes. Colab: into *Files*. Kaggle: as a data set. An address of a repository
#    needs no upload.
# 3. Set the variables below, and run all cells.

# %%
SOURCE = "shootout-*.whl"  # Kaggle: "/kaggle/input/*/shootout-*.whl"; a repository: "git+https://ADDRESS.git"
MINUTES = 15  # for all measurements together; the installation comes on top
EXTRAS = ["torch", "onnxruntime", "jax", "tensorrt"]  # "tensorrt" downloads the most, about 2 GB

# %% [markdown]
# ## Install
#
# The image keeps its own packages, such as PyTorch and JAX with their CUDA libraries. Only what is missing is
# installed, and of ONNX Runtime the build with CUDA.

# %%
import glob
import subprocess
import sys
from importlib import metadata
from pathlib import Path


def call(*words):
    """Run a command of this Python, and print its lines while it works."""
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    ) as it:
        for line in it.stdout:
            print(line, end="", flush=True)
    if it.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {it.returncode}")


wheels = glob.glob(SOURCE)
if "://" not in SOURCE and not wheels:
    raise RuntimeError(f"no wheel is named {SOURCE!r} here: upload one, or set SOURCE")
source = SOURCE if "://" in SOURCE else Path(max(wheels)).resolve().as_uri()
call("-m", "pip", "install", "--quiet", f"shootout[gpu,models,testing] @ {source}")

# %%
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

here = {canonicalize_name(one.metadata["Name"]) for one in metadata.distributions()}
missing = set()
for text in metadata.requires("shootout"):
    wanted = Requirement(text)
    if wanted.marker and any(wanted.marker.evaluate({"extra": extra}) for extra in EXTRAS):
        name = "onnxruntime-gpu" if wanted.name == "onnxruntime" else wanted.name
        if canonicalize_name(name) not in here:
            missing.add(f"{name}{wanted.specifier}")
if missing:
    call("-m", "pip", "install", "--quiet", *sorted(missing))

# %% [markdown]
# ## Measure
#
# The steps come in order of value. A step that has no time left runs when this cell runs again.

# %%
call("-m", "shootout.testing.campaign", "--minutes", str(MINUTES), "--out", "gpu")

# %% [markdown]
# ## Read
#
# Each race as its screen: what ships, and how sure that is.

# %%
for journal in sorted(Path("gpu").glob("*/journal.jsonl")):
    call("-c", "from shootout.cli import main; main()", "show", str(journal.parent))

# %% [markdown]
# ## Take it home
#
# The archive holds the runs with their samples, and what the steps printed. Unpack it with `tar -xf gpu.tar.gz`, and
# show a run with `shootout show gpu/shootout`. The runs name the machine's parts and versions, but no user and no host.
# What the steps printed may have paths and the host's name.

# %%
try:
    from google.colab import files
except ImportError:
    print(f"Download {Path('gpu.tar.gz').resolve()}; Kaggle lists it under Output.")
else:
    files.download("gpu.tar.gz")
