"""Write what a maintainer needs, the text for an issue and a program of the package alone, and keep the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from shootout.apps.bisect.bisection import Bisection
from shootout.apps.bisect.screen import (
    as_data,
    make_rows,
    quantity_of,
    tell_others,
    tell_sentence,
    tell_size,
    tell_sure,
    write_screen,
)
from shootout.apps.bisect.search import Outcome
from shootout.core.units import counted, size
from shootout.tell.machines import machine_of
from shootout.tell.report import WIDEST, render_plain

ISSUE, PROGRAM = "issue.md", "repro.py"
"""The text for an issue and the program, in the search's folder."""
OPENERS = {
    "onnxruntime": """import onnxruntime as package

options = package.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
session = package.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
call = lambda: session.run(None, inputs)
""",
    "openvino": """import openvino as package

settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
model = package.Core().compile_model(sys.argv[1], "CPU", settings | {"INFERENCE_NUM_THREADS": str(THREADS)})
call = lambda: list(model(inputs).values())
""",
}
"""By package, the lines that open an ONNX file in FP32 by this package alone."""


def write_program(one: Bisection) -> str:
    """Write a program that opens the model by the package alone, calls it and prints its figures.

    Return "" if the package alone doesn't open what was measured: no ONNX file, or another precision than FP32.
    """
    opener = OPENERS.get(one.asked.package, "")
    if not (opener and one.operators and one.inputs and one.asked.target == f"{one.asked.package}:cpu:fp32"):
        return ""
    inputs = []
    for spec in one.inputs:
        drawn = f"random.random({spec.shape})" if "float" in spec.dtype else f"random.integers(0, 2, {spec.shape})"
        inputs.append(f'    "{spec.name}": {drawn}.astype("{spec.dtype}"),')
    program = Template((Path(__file__).parent / "repro.txt").read_text(encoding="utf-8"))
    return program.substitute(threads=one.threads, inputs="\n".join(inputs), opener=opener)


def write_issue(one: Bisection) -> str:
    """Write the text for an issue in Markdown, without a path of this machine."""
    rows = make_rows(one)
    about = f"{quantity_of(one).what} with `{one.asked.target}`, {counted(one.threads, 'thread')}"
    pinned = f", each process pinned to {counted(one.pinned_cpus, 'CPU')}" if one.pinned_cpus else ""
    lines = [
        *(f"# {tell_sentence(one)}", ""),
        f"Measured: {about}{pinned}. Releases are compared in races, in which they take turns and are started afresh "
        "again and again. Brackets hold an interval over these restarts.",
        "",
        *(f"| {' | '.join(rows[0])} |", "| --- " * len(rows[0]) + "|"),
        *(f"| {' | '.join(cell.strip() for cell in row.values())} |" for row in rows),
        "",
        *(f"- {fact}." for fact in _tell_facts(one)),
        *_tell_again(one),
    ]
    return "\n".join(lines)


def _tell_facts(one: Bisection) -> Iterator[str]:
    found, facts, cpu = one.found, one.facts, one.facts["cpu"]
    if found.outcome is Outcome.NAMED:
        yield f"{found.first_bad} against {found.last_good}, in a race of the two: {tell_size(one)}"
    yield from (f"Sure: {told}" for told in tell_sure(one))
    yield from (f"{release} is left out: {why}" for release, why in one.found.skipped.items())
    file, name = one.asked.sha256, one.asked.name
    told = f"a file with sha256 `{file}`" if file else f"`{name}`, which shootout makes"
    shapes = [f"`{spec.name}` {spec.dtype} {[*spec.shape]}" for spec in one.inputs]
    yield f"Model: {told}{'; inputs ' if shapes else ''}{', '.join(shapes)}"
    if one.operators:
        yield "Operators: " + ", ".join(f"{count} {name}" for name, count in one.operators.items())
    cache = f", L3 {size(cpu['cache_bytes']['L3'])}" if cpu.get("cache_bytes", {}).get("L3") else ""
    kind = cpu.get("microarchitecture")
    kind = f" ({kind}: {', '.join(cpu.get('flags', ()))}{cache})" if kind else ""
    yield f"Machine: {machine_of(facts).name}{kind}; {facts['os']['name']}, kernel {facts['os']['kernel']}"
    numpy = [f", numpy {made.packages['numpy']}" for made in one.made.values() if "numpy" in made.packages][:1]
    yield f"Python {facts['python']['version']}{''.join(numpy)}; each release has an environment of its own"
    yield from [f"Other packages: {'; '.join(tell_others(one))}"] if len(one.made) > 1 else []


def _tell_again(one: Bisection) -> Iterator[str]:
    """Tell how to measure again: by the package alone if that can be, and by shootout."""
    if program := write_program(one):
        two = (one.found.last_good, one.found.first_bad) if one.found.outcome is Outcome.NAMED else one.ends
        yield from ("", f"Again, by {one.asked.package} alone, with the program below as `{PROGRAM}`:", "", "```sh")
        for release in two:
            numpy = one.made[release].packages.get("numpy") if release in one.made else ""
            needs = f"{one.asked.package}=={release} numpy{f'=={numpy}' if numpy else ''}"
            yield f"pip install {needs} && python {PROGRAM} {one.asked.name}"
        yield from ("```", "", "```python", program.rstrip(), "```")
    yield from ("", "Again, by shootout:", "", "```sh", one.again, "```", "")


def name_files(word: str) -> str:
    """Return a word of a command with its files named without their folders, which name users: `--inputs=x.npz`."""
    return "".join(part.rstrip("/").rpartition("/")[2] or part for part in re.split("([=:,])", word))


def keep_answer(one: Bisection) -> dict[str, Any]:
    """Write what is known into the search's folder; return the answer as JSON values."""
    found, issue = one.found, one.folder / ISSUE
    texts = (write_issue(one), write_program(one)) if found.sign and one.is_later_more else ("", "")
    for file, text in zip((issue, one.folder / PROGRAM), texts, strict=True):
        file.unlink(missing_ok=True)  # none of an earlier answer stays
        if text:
            file.write_text(text, encoding="utf-8")
    name = str(issue) if texts[0] else ""
    answer = as_data(one, name)
    one.keep(done=one.is_done, answer=answer, screen=render_plain(write_screen(one, name, WIDEST)))
    return answer
