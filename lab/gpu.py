"""Run the campaign of docs/gpu.md (`make gpu`) in an environment that has the machine's packages, and ours beside them.

Only the standard library is imported: the machine's Python has torch and JAX, and `set_up` brings the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "gpu"
OF_THE_MACHINE = re.compile(r"torch|triton|jax|jaxlib|jax-cuda.*|numpy|onnxruntime|nvidia-(?!ml-py).*")
"""Packages whose build belongs to the machine: a wheel never takes the place of one that is there."""
UNAVAILABLE = 6
LACKS = """
    setuptools pydantic pydantic-core annotated-types typing-inspection typing-extensions archspec typer annotated-doc
    shellingham nvidia-ml-py openvino openvino-telemetry nncf pydot tabulate torchao torchax pytest pytest-timeout
    pluggy iniconfig cuda-bindings cuda-pathfinder tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs
"""
"""What a GPU machine is likely to lack, the most needed first. Its own builds stay: torch, JAX, NumPy, CUDA."""
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12)), "manylinux2014_x86_64")


def missing_wheels(folders: Sequence[Path], here: Sequence[str]) -> list[Path]:
    """Return the wheels of packages that aren't in `here` in that version; parts of a wheel are put together first."""
    have = {normalize(one.metadata["Name"]): one.version for one in reversed([*metadata.distributions(path=[*here])])}
    if "onnxruntime-gpu" in have:  # another build of the same module
        have.setdefault("onnxruntime", have["onnxruntime-gpu"])
    found = []
    for folder in folders:
        parts = sorted(folder.glob("*.whl.part*"))
        for whole in {part.with_suffix("") for part in parts}:
            whole.write_bytes(b"".join(part.read_bytes() for part in parts if part.with_suffix("") == whole))
        for wheel in sorted(folder.glob("*.whl")):
            name, version = normalize(wheel.name.split("-")[0]), wheel.name.split("-")[1]
            if have.get(name) != version and not (name in have and OF_THE_MACHINE.fullmatch(name)):
                found.append(wheel)
    return found


def normalize(name: str) -> str:
    """Return a package's name as pip compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def set_up(wheels: Sequence[Path], place: Path = BUILD) -> Path:
    """Make an environment that has this checkout, the wheels, and all of the machine's packages; return its `bin`.

    Nothing of the machine is changed, and no network is asked.

    Raises:
        SystemExit: it can't be made, or a package that nothing works without is missing.
    """
    folder = place / f"python-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (folder / "bin" / "python").exists():
        venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    of_the_machine = [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
    (site / "machine.pth").write_text("\n".join(of_the_machine) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-index", "--no-deps", "--force-reinstall"]
    missing = [str(wheel) for wheel in missing_wheels(wheels, [str(site), *of_the_machine])]
    say(f"from the wheels: {', '.join(Path(name).name for name in missing) or 'nothing'}")
    if missing and subprocess.run([*pip, *missing], capture_output=True, check=False).returncode:
        for name in missing:  # one at a time, to see which pip refuses
            if why := last_line(subprocess.run([*pip, name], capture_output=True, text=True, check=False)):
                say(f"{Path(name).name} isn't installed: {why}")
    commands = ([*pip, "--no-build-isolation", "-e", str(ROOT)], [str(folder / "bin" / "shootout"), "--version"])
    for command in commands:
        if why := last_line(subprocess.run(command, capture_output=True, text=True, check=False)):
            say(f"{why}. Fix: where there is a network, `make gpu-wheels WHEELS=wheels`; here `make gpu WHEELS=wheels`")
            raise SystemExit(UNAVAILABLE)
    return folder / "bin"


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command failed, in its own last words; "" if it didn't."""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return (lines[-1].strip() if lines else f"exit code {done.returncode}") if done.returncode else ""


def fetch(folder: Path, python: str, cut: str) -> None:
    """Download the wheels of LACKS for a Python version, in those of constraints.txt; cut larger ones into parts.

    Raises:
        subprocess.CalledProcessError: pip can't have one; it has said which.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), "--implementation", "cp"]
    pip += ["--python-version", python, *(f"--platform={one}" for one in PLATFORMS), "-d", str(folder)]
    subprocess.run([*pip, *LACKS.split()], check=True)
    for wheel in folder.glob("*.whl") if cut else ():
        subprocess.run(["split", "-d", "-b", cut, str(wheel), f"{wheel}.part"], check=True)
        wheel.unlink()
    say(f"{sum(one.stat().st_size for one in folder.iterdir()) / 1e6:.0f} MB in {folder}")


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Set up, then become the campaign's process, so that Ctrl-C reaches it alone."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--minutes", default="20", help="for all steps together")
    parser.add_argument("--wheels", default="", metavar="DIR[:DIR]", help="folders of wheels for what is missing")
    parser.add_argument("--out", default="", metavar="DIR", help="default: the unfinished campaign, or a new one")
    parser.add_argument("--dry-run", action="store_true", help="set up, and print what would be run")
    parser.add_argument("--fetch", default="", metavar="VERSION", help="only fetch wheels, for this Python version")
    parser.add_argument("--cut", default="", metavar="SIZE", help="with --fetch: cut wheels into parts of this size")
    options = parser.parse_args()
    if options.fetch:
        fetch(Path(options.wheels or BUILD / "wheels"), options.fetch, options.cut)
        return
    wheels = [Path(name).expanduser().absolute() for name in options.wheels.split(os.pathsep) if name]
    for folder in wheels:
        if not [*folder.glob("*.whl*")]:
            parser.error(f"WHEELS={folder} holds no wheel: fill it with `make gpu-wheels WHEELS={folder}`")
    out = str(Path(options.out).expanduser().absolute()) if options.out else ""
    python = str(set_up(wheels) / "python")
    os.chdir(ROOT)
    words = ["-m", "shootout.testing.campaign", "--minutes", options.minutes, "--out", out]
    os.execv(python, [python, *words, *(["--dry-run"] if options.dry_run else [])])


if __name__ == "__main__":
    main()
