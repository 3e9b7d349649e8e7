"""The cells of docs/notebook.ipynb, which `make notebook` makes: see tests/docs/notebook.py."""

# %% [markdown]
# # From a model to an answer that you can defend
#
# This notebook has a shootout, a quantization study, and two decisions by limits of your own. The cells read runs that
# were measured before, so they take seconds. With `LIVE = True` they race on this machine, for eleven minutes at most.
# The figures come from a busy virtual machine with 2 CPUs. Look at how sure they are, not at how fast.

# %%
import altair

import shootout

altair.renderers.enable("svg")  # a picture in the file, and no script
LIVE = False


def measured(folder, name="shootout", **options):
    """Return the run in a folder of this repository, or the same measured here and now."""
    if LIVE:
        return shootout.run(name, out=f"../results/notebook/{folder}", **options)
    return shootout.load(f"../results/reference/{folder}")


# %% [markdown]
# ## 1. A shootout
#
# All installed backends race on the toy model at batch 1. The answer comes first, and the table opens.

# %%
run = measured("shootout", max_time_s=120)
run

# %% [markdown]
# Each dot is a ratio to the target that ships, and each bar is its interval. A gray target isn't shipped, for the
# reason beside it.

# %%
run.plot()

# %% [markdown]
# Any two targets that raced can be compared, by the restarts that both took part in.

# %%
print(run.verdict("onnxruntime", "openvino"))
print(run.verdict("onnxruntime", "torch-eager"))

# %% [markdown]
# ## 2. What does a lower precision cost, and what does it buy?
#
# EfficientNet-B2 in FP32, BF16 and INT8. Its weights are random, so its outputs have an error and no accuracy.

# %%
study = measured("efficientnet-quantization", "efficientnet-quantization", model="efficientnet", max_time_s=240)
study

# %%
study.plot("accuracy")

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
# A small classifier of handwritten digits. Wanted is the lowest latency, with three limits: at most 100 MB installed,
# a p99 of a millisecond, and a loss of at most one point of accuracy against plain FP32.

# %%
backends = ["onnxruntime", "onnxruntime:cpu:int8", "openvino", "openvino:cpu:int8", "torch-eager", "numpy", "litert"]
digits = measured("decide-digits", "digits", backends=backends, goal="resolve 2%", max_time_s=150)
decided = digits.decide({"limits": {"p99": "1ms", "install": "100MB", "max-drop": "1pp"}})
decided

# %% [markdown]
# The same as a picture: the objective, and each limit with the targets that meet it.

# %%
decided.plot()

# %% [markdown]
# Another need has another answer. This is the smallest model that is right at least 95 times in 100.

# %%
digits.decide({"objective": "size", "limits": {"min-metric": 0.95}})

# %% [markdown]
# A limit that the data don't settle is neither met nor broken. Then nothing is chosen, and the reason says what would
# settle it.

# %%
undecided = digits.decide({"limits": {"min-metric": 0.97}})
print(undecided.outcome, "-", undecided.decision.reason)

# %% [markdown]
# ## 4. A decision on a real ONNX file
#
# `magika` is Google's classifier of file contents, 3 MB, at batch 1. The file comes from `pip download --no-deps
# magika==1.0.3` (Apache-2.0), as `magika/models/standard_v3_3/model.onnx`. A live notebook needs it as `magika.onnx`.
# Wanted is the lowest latency with outputs that don't change, and a start within a second.

# %%
magika = measured("magika", model="magika.onnx", parameters={"unk__214": 1}, max_time_s=150)
magika.decide({"limits": {"max-error": "1e-5", "ready": "1s"}})

# %% [markdown]
# With room for one megabyte only, the answer is another target, and it says what that costs.

# %%
small = magika.decide({"limits": {"size": "1MB", "max-error": "1e-2"}})
print(small)
print(magika.verdict(small.chosen, "onnxruntime"))

# %% [markdown]
# ## 5. For others
#
# The same rows go to a database, to a CI's list of tests, and to a service that follows figures over time
# ([report.md](report.md)). `shootout report RUN -o report.html` makes a page of the whole run.

# %%
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    files = [f"{folder}/rows.parquet", f"{folder}/junit.xml", f"{folder}/bencher.json"]
    run.write(*files)
    print(*(f"{Path(file).name}: {Path(file).stat().st_size / 1e3:.0f} kB" for file in files), sep="\n")
