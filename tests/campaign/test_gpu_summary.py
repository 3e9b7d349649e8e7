"""What the summary, the page and the archive of a GPU campaign say of it all."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from doctored import doctor
from gpu import page, parts, summary
from gpu.state import State, Status
from gpu.steps import STEPS
from support.races.made import ended, header, played, prepared, rounds, write

from shootout.contract import Arm, Device, Precision, Target
from shootout.journal.records import Failure, Skip
from shootout.study.group import GroupRecord

# the summary


CPU = Arm(target=Target(backend="torch-eager"), model="identity")
GPU = Arm(target=Target(backend="torch-eager", device=Device.CUDA), model="identity")
HALF = Arm(target=Target(backend="tensorrt", device=Device.CUDA, precision=Precision.FP16), model="identity")
LACKING = Arm(target=Target(backend="jax-jit", device=Device.CUDA), model="identity")
BROKEN = Arm(target=Target(backend="onnxruntime", device=Device.CUDA), model="identity")
COPY = Arm(target=CPU.target, model="identity", control=True)
WOBBLE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)


MACHINE = {"machine": "made", "gpus": [{"name": "NVIDIA Some"}], "cpu": {"model": "Some CPU"}}


def race(folder: Path) -> Path:
    """A sweep over two batches: the CPU wins at 1, the GPU at 4; one arm can't run, one fails."""
    groups, lines = [], list[Any]()
    for batch, gpu_ns in ((1, 2_000.0), (4, 500.0)):
        arms = tuple(
            Arm(target=one.target, model=one.model, batch=batch, control=one.control)
            for one in (CPU, GPU, HALF, LACKING, BROKEN, COPY)
        )
        name = f"identity, batch {batch}"
        pair = ((CPU.label, GPU.label), (CPU.label, LACKING.label))
        groups.append(GroupRecord(name=name, baseline=CPU.label, comparisons=2, arms=arms, pairs=pair))
        lines.append(Skip(group=name, arm=arms[3], reason="jax has no GPU here", fix="pip install jax[cuda13]"))
        lines.append(Failure(group=name, arm=arms[4], during="load", reason="needs 9 GiB of device memory"))
        for arm, probe in ((CPU, "fp32"), (GPU, "fp32"), (HALF, "fp16")):
            lines.append(prepared(arm).model_copy(update={"group": name, "probe": probe}))
        for index, wobble in enumerate(WOBBLE):
            for arm, ns in ((CPU, 1_000.0), (GPU, gpu_ns * wobble), (HALF, 300.0 * wobble), (COPY, 1_000.0 / wobble)):
                lines.append(played(arm, index, ns, group=name))
            lines.append(rounds(index).model_copy(update={"group": name}))
    return write(folder, header(groups=tuple(groups), axis="batch", environment=MACHINE), *lines, ended())


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    return summed(tmp_path)


def summed(folder: Path) -> dict[str, Any]:
    race(folder / "batch-sweep")
    doctor(folder, torch_eager=True, openvino=False)
    standing = State.read(folder)
    for step in STEPS:
        standing.note(step, Status.DONE, 12.0)
    standing.note(STEPS[-1], Status.FAILED, 1.0, "it broke")
    result: dict[str, Any] = json.loads(json.dumps(summary.summary(standing, ["Python 3.12"])))
    return result


def test_the_summary_counts_the_gpu_s_rows(found: dict[str, Any]):
    (run,) = found["runs"]
    assert run["on_gpu"] == {"measured": 4, "failed": 2, "skipped": 2}
    assert run["controls"] == {"held": 2, "judged": 2}
    assert run["complete"]
    assert {row["arm"] for row in found["rows"]} == {GPU.label, HALF.label}
    (slow,) = (row for row in found["rows"] if row["arm"] == GPU.label and row["group"] == "identity, batch 1")
    assert slow["end_to_end_ns"] == pytest.approx(2_000.0, rel=0.01)
    assert slow["ratio"]["verdict"] == "slower"


def test_the_summary_has_the_crossover_with_its_bracket_in_both_scopes(found: dict[str, Any]):
    assert {one["scope"] for one in found["crossovers"]} == {"end_to_end", "compute"}
    for one in found["crossovers"]:
        if one["b"] == LACKING.label:
            assert one["outcome"] == "can't tell"
            continue
        assert (one["low"], one["high"]) == (1, 4)
        assert (one["below"], one["above"]) == (CPU.label, GPU.label)


def test_the_summary_says_what_the_probe_proved(found: dict[str, Any]):
    by_precision = {one["precision"]: one for one in found["probes"]}
    assert by_precision["fp16"] == {"precision": "fp16", "confirmed": 2, "refuted": [], "not_probed": 0}
    assert by_precision["fp32"]["confirmed"] == 2
    assert by_precision["tf32"]["confirmed"] == 0


def test_the_summary_says_what_failed_and_what_is_missing(found: dict[str, Any]):
    assert {one["reason"] for one in found["failed"]} == {"needs 9 GiB of device memory"}
    missing = {tuple(one["who"]): (one["reason"], one["fix"]) for one in found["missing"]}
    assert missing[("openvino:cuda",)] == ("not built for it", "get it")
    assert missing[(LACKING.label,)] == ("jax has no GPU here", "pip install jax[cuda13]")
    ((reason, fix),) = (one for who, one in missing.items() if who == (f"step {STEPS[-1].name}",))
    assert reason == "it broke"
    assert fix.startswith("make gpu OUT=")


def test_the_page_shows_all_of_it(found: dict[str, Any]):
    text = page.page(found)
    assert "- GPU: NVIDIA Some\n- CPU: Some CPU\n" in text
    assert "- Python 3.12" in text
    assert "| batch-sweep | yes | 4 | 2 | 2 | 0% | 2 of 2 groups |" in text
    crossing = f"`{CPU.label}` or `{GPU.label}`, by batch (end to end): {CPU.label} wins up to 1, {GPU.label} from 4 on"
    assert crossing in text
    assert f"- Not measured: batch-sweep: `{CPU.label}` or `{LACKING.label}`." in text
    assert "| fp16 | 2 |  | 0 |" in text
    assert "needs 9 GiB of device memory" in text
    assert "jax has no GPU here. Fix: pip install jax[cuda13]" in text
    assert "A/A: not measured" in text


def test_a_run_that_cannot_be_read_costs_the_others_nothing(tmp_path: Path):
    (tmp_path / "shootout").mkdir()
    (tmp_path / "shootout" / "journal.jsonl").write_text("{}\n{}\n")
    found = summed(tmp_path)
    assert [run["run"] for run in found["runs"]] == ["batch-sweep"]
    (lack,) = (one for one in found["missing"] if one["who"] == ["step shootout"])
    assert lack["reason"].startswith("its run can't be read: ")
    assert lack["reason"] in page.page(found)


def test_the_page_of_nothing_says_so(tmp_path: Path):
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "No race has begun." in text
    assert "None was looked for yet." in text
    assert f"step {STEPS[0].name}" in text
    assert "not begun" in text


def test_an_arm_against_itself_is_told(tmp_path: Path):
    twice = Arm(target=GPU.target, model="identity", ordinal=2)
    copy = Arm(target=GPU.target, model="identity", control=True)
    lines: list[Any] = [prepared(GPU), prepared(twice)]
    for index, wobble in enumerate(WOBBLE):
        for arm, ns in ((GPU, 1_000.0), (twice, 1_000.0 * wobble), (copy, 1_000.0 / wobble)):
            lines.append(played(arm, index, ns))
        lines.append(rounds(index))
    write(tmp_path / summary.A_A, header((GPU, twice, copy), environment=MACHINE), *lines, ended())
    found = summary.summary(State.read(tmp_path))["a_a"]
    assert found["holds"]
    assert set(found["ratios"]) == {twice.label, "the hidden copy"}
    assert found["ratios"][twice.label]["value"] == pytest.approx(1.0, abs=0.001)
    assert "A/A, a GPU arm against itself: torch-eager:cuda:fp32#2 1.00" in page.page(
        json.loads(json.dumps(summary.summary(State.read(tmp_path))))
    )


SELFTEST = {"planted": [{"ratio": 1.02, "found": 1.0204, "verdict": "slower"}]}
HANDOFF = {
    "sections": {
        "handoff-gpu": {"tables": {"hand-off": [{"backend": "torch", "step": "all", "p50_us": 90, "p99_us": 150}]}}
    }
}


def test_the_other_steps_documents_are_told(tmp_path: Path):
    standing = State.read(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "selftest.out").write_text(json.dumps(SELFTEST))
    (tmp_path / "handoff.json").write_text(json.dumps(HANDOFF))
    text = page.page(json.loads(json.dumps(summary.summary(standing))))
    assert "true 1.02, found 1.0204, slower" in text
    assert "Hand-off, torch: p50 90 us, p99 150 us." in text


@pytest.mark.parametrize("text", ["", '{"planted"'])
def test_a_document_that_was_cut_off_counts_as_none(tmp_path: Path, text: str):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "selftest.out").write_text(text)
    (tmp_path / "handoff.json").write_text(text)
    assert "Self-test on the GPU: not finished." in page.page(
        json.loads(json.dumps(summary.summary(State.read(tmp_path))))
    )


# the archive


def members(files: list[Path]) -> set[str]:
    whole = BytesIO(b"".join(file.read_bytes() for file in files))
    with tarfile.open(fileobj=whole, mode="r:xz") as packed:
        return {one.name for one in packed.getmembers() if one.isfile()}


@pytest.mark.parametrize(("most", "several"), [(1 << 20, False), (300, True)])
def test_everything_is_packed_in_parts_that_cat_joins(tmp_path: Path, most: int, several: bool):
    folder = tmp_path / "it"
    folder.mkdir()
    race(folder / "batch-sweep")
    for _ in range(2):  # the second time without the first archive in it
        files = parts.pack(folder, most)
    assert (len(files) > 1) is several
    assert all(file.stat().st_size <= most for file in files)
    assert members(files) == {"it/batch-sweep/journal.jsonl"}
    assert sorted(folder.glob(f"{parts.ARCHIVE}*")) == sorted(files)
    assert [files] == list(parts.gathered(files).values()) or not several
