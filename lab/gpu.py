"""Race, within GPU_MINUTES, what docs/evidence/claims.md still needs a GPU for: `make gpu`, as docs/gpu.md says.

What settles most claims a minute comes first. A race has its share of the time that is left, so what one saves is the
later ones'. The same command again continues what isn't finished.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shootout.backends.chosen_gpu import require_gpu
from shootout.core.clock import Deadline
from shootout.core.errors import ExitCode, SkippedArm

RACES = """
4 gpu-batch: CPU and GPU are equal up to batch 64, then the CPU's time alone grows
batch-sweep --batch 1,64,512,2048 --backends onnxruntime,torch-eager,onnxruntime:cuda,torch-eager:cuda
3 gpu-matmul: a GPU wins at large sizes alone, half of its time is copies, a timer that doesn't wait shows a constant
matmul-transfers --set n=1,64,1024,4096 --backends numpy,torch-eager,torch-eager:cuda
3 gpu-small: nets of 100 units are too small for a GPU, in a call and in a training step
small-networks --backends torch-eager,jax-jit,torch-eager:cuda,jax-jit:cuda
2 gpu-sin: the CPU wins once copies count; fusing halves the time
nested-sin --set elements=1024,1048576,33554432 --backends torch-eager,torch-eager:cuda,torch-compile:cuda
1 gpu-streams: streams change little
nested-sin --set elements=33554432 --scenario throughput --threads 1 --instances 1,4 --backends torch-eager:cuda
1 gpu-compile: torch.compile gains little
shootout --backends torch-eager:cuda,torch-compile:cuda,torch-compile+cudagraphs:cuda
3 gpu-efficientnet: the CPU takes three times as long, and 2.8 times once compiled and quantized
efficientnet-quantization --model efficientnet --backends {quantized},torch-compile:cuda:fp16
1 gpu-linear: FP16 and BF16 units make 256×1024 · 1024×2048 faster
linear-precision --batch 256 --backends onnxruntime,torch-eager:cuda:*
2 gpu-bert: what FP16 and INT8 gain
bert-quantization --backends {quantized},torch-eager:cuda:int8-dynamic
2 gpu-width: from d_model 512 on the CPU's time grows and the GPU's hardly does
width-sweep --set d_model=128,512,2048 --backends onnxruntime,torch-eager,onnxruntime:cuda,torch-eager:cuda
2 gpu-depth: the GPU is slower than the CPU at every depth
depth-sweep --set n_layers=128,512 --backends onnxruntime,torch-eager,onnxruntime:cuda,torch-eager:cuda
"""
"""In pairs of lines: share of the time, name of the run folder, claim; and the words behind `shootout run`."""
QUANTIZED = "onnxruntime,onnxruntime:cpu:int8,onnxruntime:cuda:fp32,onnxruntime:cuda:fp16,tensorrt:cuda:int8/shared"
SHOOTOUT = (sys.executable, "-c", "from shootout.cli import main; main()")
LEAST_S, GRACE_S = 15, 20
"""A race isn't begun with less; one that `--max-time` doesn't end is interrupted so much later, then killed."""


def list_races(out: Path, limit: Deadline) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each race that has time when its turn comes: what it is about, its seconds, and the command."""
    lines = RACES.format(quantized=QUANTIZED).strip().splitlines()
    shares = [int(line.split()[0]) for line in lines[::2]]
    for place, (head, words) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        seconds = int((limit.left_s - GRACE_S) * shares[place] / sum(shares[place:]))
        if seconds >= LEAST_S:
            _, name, claim = head.split(maxsplit=2)
            stop = ["timeout", "--foreground", "--signal=INT", f"--kill-after={GRACE_S}", str(seconds + GRACE_S)]
            limits = ["--max-time", f"{seconds}s", "--out", str(out / name.rstrip(":"))]
            yield f"{name} {claim}", seconds, [*stop, *SHOOTOUT, "run", *words.split(), *limits]


def main() -> None:
    """Run the races one after the other, then pack what is there."""
    out, is_dry = Path(os.environ.get("OUT") or "results/gpu"), bool(os.environ.get("DRY"))
    limit = Deadline(60 * float(os.environ.get("GPU_MINUTES") or 14))
    try:
        require_gpu()
    except SkippedArm as lack:
        sys.stderr.write(f"{lack.reason}; {lack.fix}\n")
        if not is_dry:
            sys.exit(ExitCode.UNAVAILABLE)
    for about, seconds, command in list_races(out, limit):
        sys.stderr.write(f"{about}; {seconds} s\n")
        if is_dry:
            sys.stdout.write(f"{shlex.join(command)}\n")
            limit.put_off(-seconds)
        else:
            subprocess.run(command, check=False)
    if not is_dry:
        subprocess.run([*SHOOTOUT, "pack", str(out), "--raw", "-o", f"{out}.tar.gz"], check=False)


if __name__ == "__main__":
    main()
