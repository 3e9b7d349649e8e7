"""What is read out of a trace of system calls: an internet socket or a file elsewhere would be seen."""

from __future__ import annotations

from pathlib import Path

from lab.traced.calls import Traced, places_of, read_calls
from lab.traced.section import _files, _sockets

LINES = r"""
socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, [9<socket:[1]>, 10<socket:[2]>]) = 0
socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3<socket:[5]>
connect(3<socket:[5]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 ENETUNREACH (N)
openat(AT_FDCWD</run>, "read", O_RDONLY|O_CLOEXEC) = 4</elsewhere/read>
openat(AT_FDCWD</run>, "O_CREAT", O_RDONLY) = 4</elsewhere/O_CREAT>
openat(AT_FDCWD</run>, "no", O_WRONLY|O_CREAT, 0666) = -1 EACCES (Permission denied)
openat(AT_FDCWD</elsewhere>, "../run/a", O_WRONLY|O_CREAT, 0666) = 4</run/a>
openat(AT_FDCWD</run>, "/dev/null", O_RDWR) = 5</dev/null>
rename("/run/tmp/b", "/elsewhere/b \"quoted\"") = 0
unlinkat(7</home/me>, "gone", 0) = 0
mkdir("/home/me/lib/__pycache__", 0777) = 0
+++ exited with 0 +++
"""


def test_sockets_and_changed_paths_are_found():
    traced, run = Traced(), Path("/run")
    read_calls(LINES.splitlines(), traced)
    assert traced.sockets == {"UNIX": 1, "INET": 1}
    inside, outside = places_of(traced.changed, {"temporary": run / "tmp", "run": run})
    assert inside == {"run": 1, "temporary": 1, "the kernel's own (/proc, /dev, /sys)": 1}
    assert sorted(map(str, outside)) == [r"/elsewhere/b \"quoted\"", "/home/me/gone", "/home/me/lib/__pycache__"]


def test_what_may_not_be_fails_its_row():
    traced = Traced()
    assert not [row for row in (*_sockets(traced), *_files(traced, {})) if "failed" in row]
    read_calls(LINES.splitlines(), traced)
    failed = [row["failed"] for row in (*_sockets(traced), *_files(traced, {"run": Path("/run")})) if "failed" in row]
    assert [one.split(":")[0] for one in failed] == [
        "an internet socket",
        r"/elsewhere/b \"quoted\" was changed",
        "/home/me/gone was changed",
    ]
    assert "1.2.3.4" in failed[0]
