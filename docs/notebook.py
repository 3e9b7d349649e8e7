"""The cells of docs/notebook.ipynb, which `make notebook` makes: see tests/docs/notebook.py."""

# %% [markdown]
# # From a model to an answer that you can defend
#
# A shootout, what a quantization study says, and two decisions by limits of your own. Each run was measured before
# and is read here, so the cells take seconds; with `LIVE = True` they race on this machine, eleven minutes at most in
# all. The figures come from a virtual machine with 2 CPUs that it shared with others: what matters is not how fast
# something is there, but what is known.

# %%
import altair

import shootout

altair.renderers.enable("svg")  # a picture in the file, and no script
LIVE = False


def measured(folder, name="shootout", **options):
    """The run in a folder of this repository, or the same measured here and now."""
    if LIVE:
        return shootout.run(name, out=f"../results/notebook/{folder}", **options)
    return shootout.load(f"../results/reference/{folder}")


# %% [markdown]
# ## 1. A shootout
#
# All backends that are installed, on the toy model at batch 1. The answer comes first; the table opens.

# %%
run = measured("shootout", max_time_s=120)
run

# %% [markdown]
# Each dot is a ratio to the arm to ship, each bar what is known of it. Grey is not to be shipped, and why.

# %%
run.plot()

# %% [markdown]
# Any two arms that raced have a verdict, from the restarts that both played.

# %%
print(run.verdict("onnxruntime", "openvino"))
print(run.verdict("onnxruntime", "torch-eager"))

# %% [markdown]
# ## 2. What does a lower precision cost, and what does it buy?
#
# EfficientNet-B2 in FP32, BF16 and INT8. Its weights are random, so what is known of the outputs is an error, not an
# accuracy.

# %%
study = measured("efficientnet-quantization", "efficientnet-quantization", model="efficientnet", max_time_s=240)
study

# %%
study.plot("precisions")

# %% [markdown]
# The rows as a table for your own questions; `to_arrow()` gives the same without pandas.

# %%
frame = study.to_pandas()
columns = {
    "arm": "arm",
    "end_to_end.median_ns": "median_ns",
    "artifact_bytes": "bytes",
    "end_to_end.own_fp32_ratio.value": "to own FP32",
    "fidelity.relative_l2": "error",
    "executed.compute_nodes_by_precision.int8": "INT8 layers",
}
frame.loc[frame.outcome == "measured", list(columns)].rename(columns=columns)

# %% [markdown]
# ## 3. A decision on a model with a task
#
# A small classifier of handwritten digits. Wanted: the lowest latency of what installs in less than 100 MB, answers
# within a millisecond 99 times in 100, and loses at most a point of accuracy against plain FP32.

# %%
backends = ["onnxruntime", "onnxruntime:cpu:int8", "openvino", "openvino:cpu:int8", "torch-eager", "numpy", "litert"]
digits = measured("decide-digits", "digits", backends=backends, goal="resolve 2%", max_time_s=150)
decided = digits.decide({"limits": {"p99": "1ms", "install": "100MB", "max-accuracy-drop": "1pp"}})
decided

# %% [markdown]
# The same as a picture: the objective, and each limit with who meets it.

# %%
decided.plot()

# %% [markdown]
# Another need, another answer: the smallest artifact that is right at least 95 times in 100.

# %%
digits.decide({"objective": "size", "limits": {"min-accuracy": "95%"}})

# %% [markdown]
# What nothing proves is neither met nor broken, and then nothing is chosen: it says what would settle it.

# %%
undecided = digits.decide({"limits": {"min-accuracy": "97%"}})
print(undecided.outcome, "-", undecided.decision.reason)

# %% [markdown]
# ## 4. A decision on a real ONNX file
#
# `magika` is Google's classifier of file contents, 3 MB, at batch 1: `magika/models/standard_v3_3/model.onnx` out of
# `pip download --no-deps magika==1.0.3` (Apache-2.0); a live notebook wants it beside itself as `magika.onnx`. Wanted:
# the lowest latency with outputs that don't change, and a start within a second.

# %%
magika = measured("magika", model="magika.onnx", parameters={"unk__214": 1}, max_time_s=150)
magika.decide({"limits": {"max-error": "1e-5", "ready": "1s"}})

# %% [markdown]
# Who has room for one megabyte only gets one, and what it costs is said.

# %%
small = magika.decide({"limits": {"size": "1MB", "max-error": "1e-2"}})
print(small)
print(magika.verdict(small.chosen, "onnxruntime"))

# %% [markdown]
# ## 5. For others
#
# The same rows for a database, a CI's list of tests, a service that follows figures over time
# ([outputs.md](outputs.md)), and the whole run as a page: `shootout report RUN -o report.html`.

# %%
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    files = [f"{folder}/rows.parquet", f"{folder}/junit.xml", f"{folder}/bencher.json"]
    run.write(*files)
    print(*(f"{Path(file).name}: {Path(file).stat().st_size / 1e3:.0f} kB" for file in files), sep="\n")
