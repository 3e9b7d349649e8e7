"""The compiler that remembers, before a made one that notes each call."""

from __future__ import annotations

from pathlib import Path

from support import compiled

CALLED = """#!/bin/sh
echo "$*" >> {log}
{also}
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done
true
"""
KERNEL = f"#include <{compiled.HEADER}>\nvoid kernel() {{}} // "


class Made:
    """A compiler in a folder, a header that it finds, and the calls it got."""

    def __init__(self, folder: Path, also: str = "") -> None:
        self.folder, self.log, self.real = folder, folder / "log", folder / "real"
        self.real.write_text(CALLED.format(log=self.log, also=also))
        self.real.chmod(0o755)
        header = folder / "include" / compiled.HEADER
        header.parent.mkdir(parents=True)
        header.write_text("")

    def calls(self, source: str, *flags: str) -> list[str]:
        """What it was called with to compile this source."""
        self.log.write_text("")
        file, target = self.folder / "kernel.cpp", self.folder / "kernel.so"
        file.write_text(source)
        target.unlink(missing_ok=True)
        arguments = [str(file), "-shared", *flags, f"-I{self.folder / 'include'}", "-lgomp", "-o", str(target)]
        assert compiled.main(str(self.real), self.folder, arguments) == 0
        assert target.read_text() == "made\n"
        return self.log.read_text().splitlines()


def test_the_same_call_is_made_once(tmp_path: Path):
    made = Made(tmp_path)
    assert len(made.calls("void other() {}")) == 1
    assert made.calls("void other() {}") == []
    assert len(made.calls("void other() {}", "-O3")) == 1
    assert len(made.calls("void another() {}")) == 1


def test_a_kernel_s_header_is_compiled_beforehand_once_for_the_same_flags(tmp_path: Path):
    made = Made(tmp_path)
    header, kernel = made.calls(f"{KERNEL}1", "-O3")
    assert "c++-header" in header
    assert "-O3" in header
    assert not {"-shared", "-lgomp", str(tmp_path / "kernel.cpp")} & set(header.split())
    place = Path(kernel.split()[0].removeprefix("-I"))
    assert (place / f"{compiled.HEADER}.gch").exists()
    assert made.calls(f"{KERNEL}2", "-O3") == [kernel]
    assert len(made.calls(f"{KERNEL}2", "-O1")) == 2


def test_a_header_that_does_not_compile_is_left_to_the_kernel(tmp_path: Path):
    _, kernel = Made(tmp_path, also='case "$*" in *c++-header*) exit 1;; esac').calls(f"{KERNEL}1")
    assert kernel.split()[0] == str(tmp_path / "kernel.cpp")
