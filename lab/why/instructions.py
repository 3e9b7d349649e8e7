"""Why the arms come in the order they do, by counting: the instructions of one call, step by step, and where they lie.

A process that is stepped through with ptrace executes what it would by itself, and how many steps that takes is no
matter of who else uses the machine: so this tells about a busy one, too, though nothing of caches and of waiting for
memory. Layers 16 wide compute next to nothing; what a call executes there is what the runtime spends between products.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.common import TOY, Bench, Table, Tables, attempt, say
from lab.parity import plain
from shootout.contract import Arm
from shootout.host.placement import child_environment

TARGETS = ("litert", "onnxruntime", "openvino", "jax-jit", "torch-compile+aoti", "executorch", "iree", "ncnn")
WIDTHS = (16, 128)
DEPTH = 128
PEEKUSER, SINGLESTEP, ATTACH = 3, 9, 16
RIP, RAX = 16 * 8, 10 * 8
"""Where x86-64's registers lie in `struct user`."""
SYSCALL, GETPPID = b"\x0f\x05", 110
Part = tuple[int, int, str]
"""Executable memory: where it begins and ends, and its file; "generated" where it has none."""
MOST = 60_000_000
"""Steps, before an arm is given up."""


def figures(bench: Bench) -> Tables:
    """A row for each arm and width."""
    rows: Table = []
    for width in WIDTHS:
        for target in bench.targets or TARGETS:
            say(f"  {target}, {width} wide")
            arm = bench.arm(target, TOY, {"d_model": width, "n_layers": DEPTH})
            found, why = attempt(partial(_count, bench, arm))
            rows.append({"arm": target, "width": width, **(found or why)})
            bench.keep({"instructions of a call": rows})
    return {"instructions of a call": rows}


def _count(bench: Bench, arm: Arm) -> dict[str, Any]:
    built, job = bench.built(arm), bench.folder / "instructions.job"
    job.write_bytes(pickle.dumps(built))
    process = subprocess.Popen(
        [sys.executable, "-P", plain.__file__, str(job), "loop", str(os.getpid())],
        env=child_environment(bench.placement.threads, 0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    try:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the process ended with {process.wait()}")
        return _told(process.pid, *_step(process.pid, process.stdin))
    finally:
        process.kill()
        process.wait()


def _step(pid: int, stdin: Any) -> tuple[Counter[int], dict[int, bytes]]:
    """How often a call executed each address, and the bytes that lie there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype, libc.ptrace.argtypes = ctypes.c_long, [ctypes.c_long] * 4
    if libc.ptrace(ATTACH, pid, 0, 0):
        raise RuntimeError(f"ptrace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, 0)
    stdin.write(b'["step", "compute"]\n')
    stdin.flush()
    hits, code, inside = Counter[int](), dict[int, bytes](), False
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for _ in range(MOST):
            place = libc.ptrace(PEEKUSER, pid, RIP, 0)
            if place not in code:
                code[place] = os.pread(memory.fileno(), 8, place)
            if code[place].startswith(SYSCALL) and libc.ptrace(PEEKUSER, pid, RAX, 0) == GETPPID:
                if inside:
                    return hits, code
                inside = True
            elif inside:
                hits[place] += 1
            libc.ptrace(SINGLESTEP, pid, 0, 0)
            if not os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
                break
    raise RuntimeError("the call did not end")


def _told(pid: int, hits: Counter[int], code: dict[int, bytes]) -> dict[str, Any]:
    return tell(hits, code, [*_mapped(pid)])


def tell(hits: Mapping[int, int], code: Mapping[int, bytes], files: Sequence[Part]) -> dict[str, Any]:
    """A row's figures.

    Args:
        hits: how often each address was executed.
        code: what lies there: by their first byte vector instructions are told from others, and calls.
        files: executable memory.
    """
    places = Counter[str]()
    vectors = calls = 0
    for place, count in hits.items():
        places[next((name for low, high, name in files if low <= place < high), "?")] += count
        vectors += count * (code[place][0] in (0x62, 0xC4, 0xC5))
        calls += count * (code[place][0] == 0xE8 or (code[place][0] == 0xFF and code[place][1] >> 3 & 7 == 2))
    python = sum(count for name, count in places.items() if name.startswith(("libpython", "python")))
    total = sum(hits.values())
    return {
        "instructions": total,
        "in Python": python,
        "vector": vectors,
        "other": total - python - vectors,
        "calls": calls,
        "most in": ", ".join(f"{name} {count}" for name, count in places.most_common(4)),
    }


def _mapped(pid: int) -> Iterator[Part]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        ends, rights, _, _, _, *name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in ends.split("-"))
        if "x" in rights:
            yield low, high, Path(name[0]).name if name else "generated"
