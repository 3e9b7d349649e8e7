"""The folder itself: the artifact, two programs, what they need and what was found, all sealed by one manifest."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import shootout
from shootout import backends
from shootout.backends.adapter import Built, Shipment
from shootout.backends.installed import closure
from shootout.bundle.npz import save_sets
from shootout.bundle.shipped import (
    CHECK,
    EVIDENCE,
    EXPECTED,
    INPUTS,
    LOAD,
    MODEL,
    REQUIREMENTS,
    SCHEMA,
    Runtime,
    Shipped,
    ShippedArm,
    seal_shipped,
)
from shootout.compare.machines import machine_of
from shootout.constants import FIDELITY_MARGIN, FP32_BAND_FLOOR, USEFUL_BAND
from shootout.contract import INTEGERS, Arrays, BandStanding, Device
from shootout.errors import UsageError
from shootout.formats.json_text import json_text
from shootout.host import hardware
from shootout.host.placement import THREAD_VARIABLES
from shootout.results.document import FidelityFigures
from shootout.ship.source import Source

MOST_CHECKED_BYTES = 32 << 20
"""Of inputs and right answers; above that, fewer sets go along."""
TORCH_CPU = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch's builds without CUDA are, which the package index has not."""
_HERE = Path(__file__).parent


def write_folder(source: Source, built: Built, folder: Path, page: str = "") -> Shipped:
    """Ship a built arm.

    Args:
        folder: to be made; it isn't there yet.
        page: the run's report; "" for none.

    Raises:
        SkippedArm: this arm can't be shipped; says what can.
        UsageError: what it needs isn't known, or the folder can't be written to.
    """
    arm, bundle = source.arm, built.bundle
    ship, templates = backends.shipping(arm.target)
    with new_folder(folder):
        (folder / MODEL).mkdir()
        (folder / EVIDENCE).mkdir()
        shipment = ship(built, folder / MODEL)
        versions = closure(arm.target)
        _write_programs(folder, templates, shipment, versions)
        sets = _few(bundle.input_buffers(), bundle.own_outputs())
        save_sets(folder / INPUTS, [inputs for inputs, _ in sets])
        save_sets(folder / EXPECTED, [outputs for _, outputs in sets])
        _write_evidence(folder / EVIDENCE, source, page)
        row, fidelity = source.row, source.row.fidelity
        machine = machine_of(source.document.environment)
        return seal_shipped(
            Shipped(
                folder=folder,
                made_with=f"shootout {shootout.__version__}",
                arm=ShippedArm(
                    label=arm.label,
                    target=str(arm.target),
                    backend=arm.target.backend,
                    device=str(arm.target.device),
                    precision=str(arm.target.precision),
                    mode=arm.target.mode,
                    scheme=arm.target.scheme,
                    threads=arm.threads,
                    batch=arm.batch,
                ),
                model={"name": bundle.model, "sha256": bundle.weights_sha256},
                inputs=bundle.inputs,
                outputs=bundle.outputs,
                versions=versions,
                isa=(*shipment.isa, *_isa_of(source)),
                machine={"key": machine.key, "name": machine.name},
                median_ns=row.end_to_end.median_ns if row.end_to_end else None,
                run=source.document.run,
                error_limit=error_limit(fidelity),
                mismatches=fidelity.mismatches if fidelity else 0,
                runtime=Runtime(
                    backend=arm.target.backend,
                    threads=arm.threads,
                    affinity=arm.threads,
                    environment=_environment(source, shipment),
                    options=shipment.options,
                ),
            )
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """A new folder, gone where it isn't finished."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{str(folder)!r} is there already: choose another -o, or remove it") from None
    except OSError as error:
        raise UsageError(f"can't make {str(folder)!r}: {error.strerror}") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def load_text(templates: Path, shipment: Shipment) -> str:
    """`load.py`: what all have alike, and the adapter's own part behind it."""
    body = (templates / shipment.template).read_text()
    return (_HERE / "load.txt").read_text().replace("SCHEMA", SCHEMA).replace("BODY\n", body)


def _write_programs(folder: Path, templates: Path, shipment: Shipment, versions: dict[str, str]) -> None:
    (folder / LOAD).write_text(load_text(templates, shipment))
    (folder / CHECK).write_text((_HERE / "check.txt").read_text().replace("SCHEMA", SCHEMA))
    lines = [f"{name}=={version}" for name, version in sorted(versions.items())]
    index = [f"--extra-index-url {TORCH_CPU}"] if any(line.endswith("+cpu") for line in lines) else []
    python = f"# measured with Python {platform.python_version()}"
    (folder / REQUIREMENTS).write_text("\n".join([python, *index, *lines, ""]))


def _write_evidence(folder: Path, source: Source, page: str) -> None:
    data = source.document.model_dump(mode="json", by_alias=True)
    (folder / "document.json").write_text(json_text(data))
    if source.decided and source.policy:
        (folder / "decision.json").write_text(json_text(source.decided.decision.model_dump(mode="json")))
        shutil.copyfile(source.policy, folder / "deploy.toml")
    if page:
        (folder / "report.html").write_text(page)


def _few(inputs: Sequence[Arrays], outputs: Sequence[Arrays]) -> list[tuple[Arrays, Arrays]]:
    """As many sets as a folder should hold, one at least."""
    bytes_each = sum(array.nbytes for array in (*inputs[0].values(), *outputs[0].values()))
    return list(zip(inputs, outputs, strict=True))[: max(1, MOST_CHECKED_BYTES // max(1, bytes_each))]


def error_limit(found: FidelityFigures | None) -> float:
    """The gate's band; where that was not what let the arm play, four times the error that it had."""
    if found is None or found.relative_l2 is None:
        raise UsageError("its error isn't known, so nothing could be checked: ship an arm that was measured")
    if found.standing is BandStanding.MET and found.band is not None:
        return min(found.band, USEFUL_BAND)
    return max(FIDELITY_MARGIN * found.relative_l2, FP32_BAND_FLOOR)


def _isa_of(source: Source) -> tuple[str, ...]:
    """Of integers, a CPU whose sums are as wide as those of the machine that measured them."""
    target, flags = source.arm.target, source.document.environment.get("cpu", {}).get("flags") or ()
    if target.device is not Device.CPU or target.precision not in INTEGERS or not hardware.VNNI & set(flags):
        return ()
    return ("|".join(sorted(hardware.VNNI)),)


def _environment(source: Source, shipment: Shipment) -> dict[str, str]:
    """The variables by which its process ran: those of the run, the thread counts, the adapter's."""
    counts = dict.fromkeys(THREAD_VARIABLES, str(source.arm.threads))
    return {**(source.document.environment.get("variables") or {}), **counts, **shipment.environment}
