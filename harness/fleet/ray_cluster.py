"""A cluster by Ray: the only module that imports it."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shootout.clock import Deadline
from shootout.errors import UNINSTALLED, UsageError, install
from shootout.fleet import machine
from shootout.fleet.cluster import Job, Lost, News, Piece
from shootout.fleet.nodes import LABEL, Place
from shootout.fleet.shipment import Shipment

ANSWERS_S = 5.0
"""A cluster that answers does so in milliseconds."""
POLL_S = 120.0
"""A node that lives, and doesn't answer for so long, counts as lost."""
_SETTINGS = b"\x04"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0" * 5
"""Of HTTP/2: an empty frame of settings, which is answered by another one."""
ENTRY = "shootout.commands.on_node"
"""What is started on a node."""
_AS_ITS_OWNER_SET_IT = {"RAY_worker_niceness": "0", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Else Ray runs our process, and all arms, at niceness 15, and shows a GPU to those alone who claim it."""


@contextmanager
def connect(address: str, shipment: Shipment, entry: str = ENTRY) -> Iterator[RayCluster]:
    """Be part of the cluster at `HOST:PORT`, or `auto`: this machine's own. Nobody prints meanwhile.

    Args:
        entry: the module that nodes run.

    Raises:
        UsageError: Ray isn't installed, the address is none, or nobody answers there; says what to do.
    """
    if find_spec("ray") is None:
        raise UsageError(f"--ray needs Ray, {UNINSTALLED}: {install('cluster')}")
    if address != "auto":
        knock(address)
    import ray

    cloudpickle: Any = ray.cloudpickle
    cloudpickle.register_pickle_by_value(machine)  # nodes have none of this package
    ends = signal.getsignal(signal.SIGTERM)
    try:
        with _quiet():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="shootout")
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"--ray {address}: {str(error).splitlines()[0]}; docs/fleet.md has how to start one") from None
    signal.signal(signal.SIGTERM, ends)  # Ray's own would leave at once, and what the nodes know with it
    try:
        # Of a lost node it prints its last logs,
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            try:
                yield RayCluster(ray, shipment, entry)
            finally:
                ray.shutdown()  # and what it kept back of them
    finally:
        cloudpickle.unregister_pickle_by_value(machine)


def knock(address: str) -> None:
    """Find out in seconds whether anybody answers as Ray does, who itself waits for a minute: it speaks HTTP/2.

    Raises:
        UsageError: nobody does, or the address is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal():
        raise UsageError(f"--ray {address!r} is no HOST:PORT, nor `auto`; `ray start --head` prints HOST:PORT")
    how = f"start a cluster there with `ray start --head --port={port}`"
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWERS_S) as connection:
            if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):  # who answers is told by Ray's certificates
                return
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--ray {address}: nobody answers there ({error}); {how}") from None
    if answer[3:4] != _SETTINGS:
        raise UsageError(f"--ray {address}: what answers there is no Ray cluster; {how}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray's own greeting isn't for our users."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class RayCluster:
    """A cluster that this process is connected to.

    Args:
        ray: the library.
        shipment: what nodes are sent; the cluster brings it to each once.
    """

    def __init__(self, ray: Any, shipment: Shipment, entry: str) -> None:
        self._ray, self._entry = ray, entry
        self._sent = [each for one in (shipment.package, shipment.files) for each in (ray.put(one.data), one.sha256)]

    def places(self) -> list[Place]:
        """The nodes that live and give out CPUs, in the order of their names."""
        found = [
            Place(
                key=node["NodeID"],
                name=f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:6]})",
                label=node["Labels"].get(LABEL, ""),
                cpus=node["Resources"]["CPU"],
                gpus=node["Resources"].get("GPU", 0.0),
            )
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        ]
        return sorted(found, key=lambda one: (one.label, one.name))

    def begin(self, place: Place, job: Job) -> RayWorker:
        """Start a job on a node, at once or when all of it is free."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._ray.remote(machine.Machine).options(
            num_cpus=place.cpus if job.claims else 0,
            num_gpus=place.gpus if job.claims else 0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.key, soft=False),
            runtime_env={"env_vars": dict(_AS_ITS_OWNER_SET_IT)},
            max_restarts=0,
        )
        return RayWorker(self._ray, actor.remote(), self._entry, job, self._sent)


class RayWorker:
    """A job of ours on a node.

    Args:
        sent: the archives and their hashes, as `Machine.begin` takes them.
    """

    def __init__(self, ray: Any, actor: Any, entry: str, job: Job, sent: Sequence[Any]) -> None:
        self._ray, self._actor = ray, actor
        self._began = actor.begin.remote(entry, dict(job.told), dict(job.folder), *sent)
        self._asked: Any = None

    def poll(self) -> News | None:
        """What is new; see `Worker`."""
        if self._began is not None:
            if not self._ray.wait([self._began], timeout=0.0)[0]:
                return None
            self._get(self._began)
            self._began = None
        if self._asked is None:  # else Ctrl-C came while it was waited for, and the node tells nothing twice
            self._asked = self._actor.poll.remote()
        found = self._get(self._asked)
        self._asked = None
        pieces = [Piece(path=path, offset=offset, data=data) for path, offset, data in found["pieces"]]
        return News(pieces=pieces, said=found["said"], answer=found["answer"])

    def _get(self, asked: Any) -> Any:
        from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

        limit = Deadline(POLL_S)
        try:
            return self._ray.get(asked, timeout=max(limit.left_s, 0.0))
        except RayTaskError as error:
            raise Lost(f"what was sent could not be started: {error.cause or error}") from None
        except GetTimeoutError:
            raise Lost(f"it hasn't answered for {POLL_S:.0f} s") from None
        except (RayActorError, RayError) as error:
            raise Lost(_told(error)) from None

    def stop(self) -> None:
        """Ask it to end."""
        self._actor.stop.remote()

    def release(self) -> None:
        """End it and give the node back."""
        with suppress(Exception):  # the node may be gone
            if self._began is None:
                self._ray.get(self._actor.close.remote(), timeout=ANSWERS_S)
        self._ray.kill(self._actor)


def _told(error: Exception) -> str:
    """Ray's long words in short ones."""
    from ray.exceptions import ActorUnschedulableError

    return "it is gone from the cluster" if isinstance(error, ActorUnschedulableError) else "it is gone, or its process"
