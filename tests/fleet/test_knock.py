"""Who answers at an address, and what comes from a node when Ctrl-C is pressed meanwhile: without Ray."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.errors import UsageError
from shootout.fleet.cluster import Job
from shootout.fleet.ray_cluster import RayWorker, knock

SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
ALERT = b"\x15\x03\x03\0\x02\x02\x46"
"""What TLS says to who doesn't speak it."""


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of who says this once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # who asked may be gone
                connection, _ = server.accept()
                with connection:
                    connection.recv(64)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _clear_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


def test_who_answers_as_ray_does_is_let_in():
    with answering(SETTINGS) as address:
        knock(address)


def test_who_answers_otherwise_is_no_cluster():
    with answering(b"HTTP/1.1 400 Bad Request\r\n") as address, pytest.raises(UsageError, match="is no Ray cluster"):
        knock(address)


def test_where_nobody_answers_it_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UsageError, match=f"nobody answers there .*ray start --head --port={port}"):
        knock(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", "host", "host:", ":6379", "ray://host:10001", "host:http"])
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(UsageError, match="is no HOST:PORT"):
        knock(address)


def test_a_cluster_that_speaks_tls_is_let_in_where_ray_is_told_so(monkeypatch: pytest.MonkeyPatch):
    with answering(ALERT) as address, pytest.raises(UsageError, match="is no Ray cluster"):
        knock(address)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with answering(ALERT) as address:
        knock(address)


def remote(answer: Callable[..., Any]) -> SimpleNamespace:
    return SimpleNamespace(remote=answer)


def test_what_a_node_told_while_ctrl_c_was_pressed_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    names = ("GetTimeoutError", "RayActorError", "RayError", "RayTaskError")
    exceptions = SimpleNamespace(**{name: type(name, (Exception,), {}) for name in names})
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    answers = [{"pieces": [("journal.jsonl", 0, line)], "said": [], "answer": None} for line in (b"two\n", b"one\n")]
    pressed = [KeyboardInterrupt()]

    def get(asked: Any, timeout: float) -> Any:
        if asked is not None and pressed:
            raise pressed.pop()
        return asked

    ray = SimpleNamespace(wait=lambda *_, **__: ([True], []), get=get)
    actor = SimpleNamespace(begin=remote(lambda *_: None), poll=remote(lambda: answers.pop()))
    worker = RayWorker(ray, actor, "job", Job(told={}), [])
    with pytest.raises(KeyboardInterrupt):
        worker.poll()
    found = [piece.data for _ in range(2) for news in [worker.poll()] if news for piece in news.pieces]
    assert found == [b"one\n", b"two\n"]
