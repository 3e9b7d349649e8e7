"""The README and the first pages show what the reference run says, to the letter, and what the backends can do."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from shootout import backends, cli
from shootout.commands.report import render
from shootout.contract import Precision
from shootout.page.sources import read
from shootout.report import table
from shootout.results import analysis

ROOT = Path(__file__).resolve().parents[2]


def read_screen(page: str) -> tuple[str, str]:
    """Return the run folder that a page shows, and the screen under its mark."""
    found = re.search(r"<!-- (results/\S+) -->\n```\n(.*?)\n```", (ROOT / page).read_text(), re.DOTALL)
    assert found, page
    return found[1], found[2]


def render_screen(run: str) -> str:
    page = StringIO()
    Console(width=100, file=page, highlight=False).print(table.render(analysis.analyse(ROOT / run), 100))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")


def test_the_readme_shows_the_answer_of_the_reference_run():
    run, shown = read_screen("README.md")
    answer, _, tables = render_screen(run).partition("\n\n")
    assert answer.startswith("Ship  ")
    assert "torch-eager:cpu:fp32" in tables
    assert shown == answer


def test_the_page_on_the_answer_shows_the_whole_screen():
    run, shown = read_screen("docs/answer.md")
    assert shown == render_screen(run)
    assert run == read_screen("README.md")[0]


def test_the_readme_fits_on_a_hundred_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


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


def test_the_readme_says_which_precisions_each_backend_runs():
    lines = re.findall(r"^\| (.*?) \|$", (ROOT / "README.md").read_text().split("## Supported")[1], re.MULTILINE)
    header, *rows = ([cell.strip() for cell in f"{line} ".split("|")] for line in lines)
    assert header[1:] == list(COLUMNS)
    assert sorted(name for names in COLUMNS.values() for name in names) == sorted(backends.names())
    assert [row[0] for row in rows] == ["FP32", "BF16", "FP16", "INT8", "INT4", "GPU"]
    for column, names in enumerate(COLUMNS.values(), 1):
        targets = {target for name in names for target in list_targets(name)}
        device = "cpu" if any(one == "cpu" for one, _ in targets) else "cuda"
        runs = {precision.removesuffix("-dynamic").upper() for one, precision in targets if one == device}
        told = {row[0] for row in rows[:-1] if row[column] == "✓"}
        assert told == runs & {row[0] for row in rows}, names
        on_a_gpu = {GPUS[one] for one, _ in targets if one in GPUS}
        assert set(rows[-1][column].split()) - {"only"} == on_a_gpu, names


GPUS = {"cuda": "CUDA", "vulkan": "Vulkan", "xpu": "Intel"}
"""Devices that are GPUs → their names in the README."""


def list_targets(name: str) -> set[tuple[str, str]]:
    """Return the (device, precision) pairs that a backend runs."""
    refused = REFUSED.get(name, set())
    offered = backends.get(name).capabilities.targets
    return {(str(device), str(precision)) for device, precision in offered if f"{device}:{precision}" not in refused}


def test_the_first_page_has_a_row_for_each_command():
    told = (ROOT / "docs/README.md").read_text().partition("\n## Commands\n")[2]
    named = [word for row in re.findall(r"^\| (`.*?`) \|", told, re.MULTILINE) for word in row.split("`")[1::2]]
    commands = {word.removeprefix("shootout ").split()[0] for word in named if not word.startswith("make ")}
    assert commands == {one.name or one.callback.__name__ for one in cli.app.registered_commands if not one.hidden}


def test_the_readme_figure_is_the_reference_run():
    """By its words, which hold the figures: places of letters depend on the fonts of the machine that drew it."""
    run = ROOT / "results" / "reference" / "shootout"
    assert f"]({run.relative_to(ROOT)}.svg)" in (ROOT / "README.md").read_text()
    kept, made = run.with_suffix(".svg").read_text(), render([read(run)], ".svg").decode()
    assert words(kept) == words(made), "run `make report`"
    assert len(words(made)) > 20


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)<", svg)


def test_every_link_of_the_documents_leads_somewhere():
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize(("run", "figures"), [("shootout", ("0.108", "8.48 MB")), ("digits", ("can't tell", "98.0%"))])
def test_an_80_column_terminal_sees_every_figure_too(run: str, figures: tuple[str, ...]):
    page = StringIO()
    document = analysis.analyse(ROOT / "results" / "reference" / run)
    Console(width=80, file=page, highlight=False).print(table.render(document, 80, full=True))
    assert "…" not in page.getvalue()
    for figure in (*figures, "ratio", "build"):
        assert figure in page.getvalue()


REFUSED = {"jax-jit": {"cpu:fp16", "cpu:fp8", "cpu:int4"}}
"""What a backend takes as a target only to say why it doesn't run it."""


def test_the_table_of_backends_names_every_precision_that_one_runs():
    text = (ROOT / "docs" / "runtimes" / "README.md").read_text()
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    rows = {line[0].split("`")[1]: line for line in lines if len(line) == 4}
    for name in backends.names():
        texts = {"cpu": rows[name][2], "cuda": ""}
        for part in rows[name][3].split(";"):
            named = re.match(r" *on `?(\w+)[^:]*:", part)
            device = named[1].lower() if named else "cuda"
            texts[device] = texts.get(device, "") + part
        targets = {f"{device}:{precision}" for device, precision in backends.get(name).capabilities.targets}
        told = {
            f"{device}:{precision}"
            for device, text in texts.items()
            for precision in map(str, Precision)
            if re.search(rf"(?<![\w-]){precision}(?![\w-])", text)
        }
        assert told == targets - REFUSED.get(name, set()) - {f"{device}:native" for device in ("cpu", "cuda")}, name
