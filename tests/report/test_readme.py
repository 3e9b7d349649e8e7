"""The README shows the figure of the reference run and what backends run, and links of the documents hold."""

from __future__ import annotations

import re
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.commands.report import render
from shootout.tell.page.contents import read

ROOT = Path(__file__).resolve().parents[2]


COLUMNS = {
    "PyTorch": ("torch-eager", "torch-compile"),
    "TorchScript": ("torchscript",),
    "JAX": ("jax-jit",),
    "ONNX Runtime": ("onnxruntime",),
    "OpenVINO": ("openvino",),
    "LiteRT": ("litert",),
    "ExecuTorch": ("executorch",),
    "IREE": ("iree",),
    "ncnn": ("ncnn",),
    "TensorRT": ("tensorrt",),
    "NumPy, trees": ("numpy", "sklearn", "lightgbm", "xgboost"),
}
"""The README's columns of what is supported → the backends in them."""
GPUS = {"cuda": "CUDA", "vulkan": "Vulkan", "xpu": "Intel"}
"""Devices that are GPUs → their names in the README."""


def test_the_readme_has_the_short_form_of_the_support_matrix():
    runs = read_support()
    header, _, *rows = read_rows((ROOT / "README.md").read_text().partition("## Supported")[2])
    assert header[1:] == list(COLUMNS)
    assert sorted(name for names in COLUMNS.values() for name in names) == sorted({name for name, _ in runs})
    *precisions, gpus = rows
    assert [row[0] for row in precisions] == ["FP32", "BF16", "FP16", "INT8", "INT4"]
    assert gpus[0] == "GPU"
    for column, names in enumerate(COLUMNS.values(), 1):
        found = {device: told for (name, device), told in runs.items() if name in names}
        marked = {row[0] for row in precisions if row[column]}
        on = "cpu" if "cpu" in found else "cuda"
        assert marked == {one.removesuffix("-dynamic").upper() for one in found[on]} & {row[0] for row in precisions}
        assert {GPUS[device] for device in found if device in GPUS} == set(gpus[column].split()) - {"only"}


def read_support() -> dict[tuple[str, str], set[str]]:
    """Return (backend, device) → its precisions, from the page that is written from the adapters."""
    header, _, *rows = read_rows((ROOT / "docs/reference/support.md").read_text().partition("\n## ")[0])
    targets = {tuple(row[0].strip("`").split(":")): row[1:] for row in rows}
    return {
        (name, device): {one for one, mark in zip(header[1:], marks, strict=True) if mark}
        for (name, device), marks in targets.items()
    }


def read_rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the table in a text, the header's and the line's below it too."""
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_readme_figure_is_the_reference_run():
    """By its words, which hold the figures: places of letters depend on the fonts of the machine that drew it."""
    run = ROOT / "results" / "reference" / "shootout"
    assert f"]({run.relative_to(ROOT)}.svg)" in (ROOT / "README.md").read_text()
    kept, made = run.with_suffix(".svg").read_text(), render([read(run, analyse(run))], ".svg").decode()
    assert words(kept) == words(made), "run `make report`"
    assert len(words(made)) > 20


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)<", svg)
