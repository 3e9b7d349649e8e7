"""Third-party adapters that break in every way there is. Each is NumPy on the identity model, but for one thing."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np

from shootout.backends._numpy.backend import NumpyAdapter
from shootout.backends._numpy.session import NumpySession
from shootout.core import clock
from shootout.core.adapter import Built
from shootout.core.contract import (
    Arm,
    Array,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    NotRun,
    NotRunKind,
    Precision,
)
from shootout.core.exported.model import ExportedModel
from shootout.core.messages import Verified
from support.adapters.third_party import install

CALLS_BEFORE_THE_END = 200
"""Past the warm-up's 60 calls, so that it happens while the arm is timed."""


class Well(NumpyAdapter):
    """Behaves. The base of the others, so that each differs in one thing only."""

    name = "well"
    capabilities = Capabilities(consumes=(Artifact.FORWARD,), targets=frozenset({(Device.CPU, Precision.FP32)}))

    hides = True
    """Whether it behaves on the permutation probe, so that only the model itself meets its fault."""

    def load(self, built: Built) -> NumpySession:
        session = super().load(built)
        if built.exported.model != "permutation_probe" or not self.hides:
            self.begin(session)
            run = session._run
            session._run = lambda inputs: self.change(run(inputs))
        return session

    def begin(self, session: NumpySession) -> None:
        """What goes wrong while it loads."""

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        """What goes wrong in each call."""
        return outputs


class RaisesInBuild(Well):
    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        raise RuntimeError("no kernel\n\x1b[31mfor this\x1b[0m")


class RaisesInLoad(Well):
    def begin(self, session: NumpySession) -> None:
        raise FileNotFoundError("no engine")


class RaisesInExecute(Well):
    calls = 0

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        self.calls += 1
        if self.calls > CALLS_BEFORE_THE_END:
            raise ArithmeticError("worn out")
        return outputs


class Hangs(Well):
    def begin(self, session: NumpySession) -> None:
        print("waiting for a license", flush=True)
        time.sleep(3_600)


class Exits(Well):
    def begin(self, session: NumpySession) -> None:
        print("goodbye", flush=True)
        os._exit(7)


class Killed(Well):
    def begin(self, session: NumpySession) -> None:
        print("reserving memory", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


class Crashes(Well):
    def begin(self, session: NumpySession) -> None:
        ctypes.string_at(0)


class Eats(Well):
    """Needs more memory than its process may have."""

    def begin(self, session: NumpySession) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        np.ones(4 << 30, dtype=np.uint8)


class OutOfMemoryError(RuntimeError):
    """As torch's."""


class FillsTheGpu(Well):
    """Says what torch says when a model is larger than the device's memory."""

    capabilities = Capabilities(consumes=(Artifact.FORWARD,), targets=frozenset({(Device.CUDA, Precision.FP32)}))

    def probe(self, device: Device) -> Availability:
        return Availability(version="1")

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        raise OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.00 GiB of which "
            "5.00 GiB is free. See documentation for Memory Management"
        )


class WrongShape(Well):
    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        return {name: array[:, :-1] for name, array in outputs.items()}


class NotANumber(Well):
    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        return {name: np.full_like(array, np.nan) for name, array in outputs.items()}


class RemembersArrays(Well):
    """Gives its first answer to an array again, whatever that holds by then."""

    def load(self, built: Built) -> NumpySession:
        session, known = super().load(built), dict[int, Arrays]()
        run = session._run
        session._run = lambda inputs: known.setdefault(id(inputs["x"]), run(inputs))
        return session


class RemembersAPart(Well):
    """Keeps its answers by a sixteenth of its inputs' numbers; the others take it long, so that this pays."""

    def load(self, built: Built) -> NumpySession:
        session, known = super().load(built), dict[bytes, Arrays]()
        run = session._run

        def part(inputs: Mapping[str, Array]) -> Arrays:
            key = inputs["x"].reshape(-1)[::16].tobytes()
            if key not in known:
                time.sleep(0.02)
                known[key] = run(inputs)
            return known[key]

        session._run = part
        return session


class SlowsTheClock(Well):
    """Lets the harness's clock run at a twentieth of its speed, as a library may that is made for tests."""

    def begin(self, session: NumpySession) -> None:
        real, began = clock.now_ns, clock.now_ns()
        clock.now_ns = lambda: began + (real() - began) // 20


class StopsTime(Well):
    """Replaces Python's clock, which the harness has taken by then."""

    def begin(self, session: NumpySession) -> None:
        time.perf_counter_ns = lambda: 0


class ConstantLater(Well):
    """Computes while it is checked and warmed up, and then gives one number for all."""

    calls = 0

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        self.calls += 1
        if self.calls <= CALLS_BEFORE_THE_END:
            return outputs
        return {name: np.full_like(array, 0.1) for name, array in outputs.items()}


class Lies(Well):
    """Labeled fp32, computes in bf16."""

    hides = False

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        low = {name: array.copy() for name, array in outputs.items()}
        for array in low.values():
            array.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        return low


class Forges(Well):
    """Answers with the harness's own records, and in their fields what breaks whoever looks at it."""

    def begin(self, session: NumpySession) -> None:
        fidelity = session.executed
        forged = Verified(executed=session.executed, fidelity=fidelity, fault=None)  # type: ignore[arg-type]
        its = sys.modules.get("shootout.core.worker.worker") or sys.modules["__main__"]
        its.Worker.verify = lambda *_, **__: forged  # type: ignore[attr-defined]


class OddFacts(Well):
    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        return Built(arm=arm, exported=exported, folder=folder, facts={"engine": object()})


class EndlessFacts(Well):
    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        return Built(arm=arm, exported=exported, folder=folder, facts={"artifact_bytes": 10**400})


class Wanders(Well):
    """Moves off the CPUs it was given, as a library may that pins its own threads."""

    def begin(self, session: NumpySession) -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


class Widens(Well):
    """Rewrites the thread count it was started with."""

    def begin(self, session: NumpySession) -> None:
        os.environ["OMP_NUM_THREADS"] = "64"


class BuildsOnly(Well):
    """Can't run here, but its artifact can be made."""

    def probe(self, device: Device) -> Availability:
        return Availability(version="3", why=NotRun(NotRunKind.BUILT_ONLY, "no such chip", "buy one"))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        (folder / "engine").write_bytes(b"12345")
        facts = {"artifact_bytes": 5, "compute_nodes_by_precision": {"fp32": 7}}
        return Built(arm=arm, exported=exported, folder=folder, facts=facts)

    def load(self, built: Built) -> NumpySession:
        raise AssertionError("an arm that can't run is never loaded")


class Counts(Well):
    """Takes long enough to build that a second build of the same would begin meanwhile.

    A build of its is nobody's but this process's: one that an earlier test run left in a kept cache would be taken.
    """

    version = uuid4().hex

    def probe(self, device: Device) -> Availability:
        return Availability(version=self.version)

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        time.sleep(1)
        return super().build(exported, arm, folder)


class Litters(Well):
    """Leaves a temporary file behind, as a compiler does that is killed."""

    def begin(self, session: NumpySession) -> None:
        Path(tempfile.gettempdir(), "litter").touch()


class Starts(Well):
    """Starts a process of its own, as compilers do."""

    def begin(self, session: NumpySession) -> None:
        subprocess.Popen(["sleep", "3600"])


class LeavesAHolder(Well):
    """Is killed while a process that it forked holds all its files open."""

    def begin(self, session: NumpySession) -> None:
        if not os.fork():
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)


FAULTS: Mapping[str, tuple[type[Well], str]] = {
    "raises-in-build": (RaisesInBuild, r"build raised RuntimeError: no kernel \| for this$"),
    "raises-in-load": (RaisesInLoad, r"load raised FileNotFoundError: no engine$"),
    "raises-in-execute": (RaisesInExecute, r"raised ArithmeticError: worn out$"),
    "hangs": (Hangs, r"^hung: no answer to 'load' within \d+ s; it was killed; its last words: waiting for a license$"),
    "exits": (Exits, r"^exited with code 7 during 'load'; its last words: goodbye$"),
    "killed": (Killed, r"^killed by SIGKILL \(.*memory runs out\) during 'load'; its last words: reserving memory$"),
    "crashes": (Crashes, r"^killed by SIGSEGV during 'load'"),
    "eats": (Eats, r"load raised MemoryError: .*4\.00 GiB"),
    "wrong-shape": (WrongShape, r"expected float32\[1, 64\], got float32\[1, 63\]$"),
    "not-a-number": (NotANumber, r"output 'y' has NaN or infinity"),
    "remembers-arrays": (RemembersArrays, r"^to inputs that it had not seen it answered wrongly: relative L2 error 1"),
    "remembers-a-part": (RemembersAPart, r"^inputs that it had not seen took \d+ times as long: it keeps answers$"),
    "slows-the-clock": (SlowsTheClock, r"^its clock is [\d.]+ m?s behind the harness's: something in its process"),
    "constant-later": (ConstantLater, r"^between timed blocks it answered wrongly: relative L2 error"),
    "lies": (Lies, r"labeled fp32, but the permutation probe finds bf16"),
    "forges": (Forges, r"^its answer to verify: fidelity is Executed\("),
    "wanders": (Wanders, r"was given the CPUs \[\d+\], but has threads that may run on \[\d"),
    "widens": (Widens, r"was started with OMP_NUM_THREADS=\d, which is 64 after loading"),
    "endless-facts": (EndlessFacts, r"^its answer to build: 0: artifact_bytes: a number of more"),
    "odd-facts": (OddFacts, r"build raised TypeError: .*not JSON serializable"),
}
"""Backend name → its adapter, and what the row's reason must say."""


ALL: Mapping[str, type[Well]] = {
    **{name: adapter for name, (adapter, _) in FAULTS.items()},
    "well": Well,
    "starts": Starts,
    "stops-time": StopsTime,
    "builds-only": BuildsOnly,
    "litters": Litters,
    "counts": Counts,
    "leaves-a-holder": LeavesAHolder,
    "fills-the-gpu": FillsTheGpu,
}


def installed(folder: Path) -> Path:
    """A folder for PYTHONPATH that makes all of them known, `well` and `starts` too."""
    return install(
        folder, "shootout-misbehaving", {name: f"support.adapters.misbehaving:{c.__name__}" for name, c in ALL.items()}
    )
