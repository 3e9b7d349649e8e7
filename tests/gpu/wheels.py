"""`make gpu-wheels`: fetch, where there is a network, the wheels that a GPU machine without one is likely to lack.

Versions are those of constraints.txt. Nothing that such a machine brings itself is among them: torch, JAX, NumPy, CUDA.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import parts
from .ground import ROOT
from .requirements import normal

CORE = (
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions", "archspec"),
    *("typer", "annotated-doc", "shellingham", "nvidia-ml-py"),
)
"""What nothing works without, in the versions that belong together: about 5 MB."""
BACKENDS = (
    *("openvino", "openvino-telemetry", "nncf", "pydot", "tabulate", "torchao", "torchax"),
    *("cuda-bindings", "cuda-pathfinder", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"),
)
"""What gives more rows; the two largest are openvino and tensorrt-rtx-cu13-libs."""
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12)), "manylinux2014_x86_64")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def pinned(constraints: str) -> dict[str, str]:
    """The version of each package in the text of a constraints file."""
    lines = (line.partition("==") for line in constraints.splitlines())
    return {normal(name.strip()): version.strip() for name, equals, version in lines if equals}


def command(names: Sequence[str], versions: dict[str, str], folder: Path, python: str) -> list[str]:
    """Pip's words; a package that constraints.txt doesn't name comes in its newest version."""
    wanted = [f"{name}=={versions[normal(name)]}" if normal(name) in versions else name for name in names]
    where = [word for platform in PLATFORMS for word in ("--platform", platform)]
    words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *words,
        "--python-version",
        python,
        *where,
        "-d",
        str(folder),
        *wanted,
    ]


def count(text: str) -> int:
    """`60M` → bytes.

    Raises:
        ValueError: it is no number with K, M or G.
    """
    unit = UNITS.get(text[-1:].upper())
    digits = text[:-1] if unit else text
    if not digits.isdecimal() or not int(digits):
        raise ValueError(f"{text!r} is no size: write 60M")
    return int(digits) * (unit or 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu-wheels", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--python", default="3.12", help="version of the GPU machine's Python")
    parser.add_argument("--cut", type=count, metavar="SIZE", help="cut larger wheels into parts of this size, e.g. 60M")
    parser.add_argument("names", nargs="*", help="packages; default: all that are likely to be missing")
    return parser.parse_args()


def main() -> int:
    """Fetch them and say how large they are."""
    options = _options()
    folder = ROOT / options.into.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    versions = pinned((ROOT / "constraints.txt").read_text())
    code = subprocess.run(
        command(options.names or (*CORE, *BACKENDS), versions, folder, options.python), check=False
    ).returncode
    if options.cut:
        for wheel in sorted(folder.glob("*.whl")):
            parts.cut(wheel, options.cut)
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file.name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
