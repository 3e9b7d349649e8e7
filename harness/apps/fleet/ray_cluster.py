"""Run tasks on the nodes of a Ray cluster. The only module that imports Ray."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shootout.apps.fleet import node_side
from shootout.apps.fleet.parcel import Answer, NodeLost, Parcel, Place, Task, write_tar
from shootout.core.errors import UsageError
from shootout.core.install import UNINSTALLED, install
from shootout.tell.delivery import Contents

SCHEME = "ray:"
LABEL = "shootout.kind"
"""The label of nodes that may stand for each other, `ray start --labels shootout.kind=NAME`."""
ANSWERS_S = 5.0
"""A cluster that answers does so in milliseconds."""
LOOK_S = 1.0
"""The time between two looks whether a result is still waited for."""
_NODE_ID = "ray.io/node-id"
"""The label by which Ray names each node."""
_AS_ITS_OWNER_SET_IT = {"RAY_worker_niceness": "0", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Else Ray runs our process, and all arms, at niceness 15, and shows a GPU only to tasks that claim one."""


@contextmanager
def connect(address: str, parcel: Parcel) -> Iterator[RayCluster]:
    """Be part of the cluster at `HOST:PORT`, or `auto`: the one that this machine is in. Ray prints nothing meanwhile.

    Args:
        parcel: what nodes are sent; the cluster brings it to each node once.

    Raises:
        UsageError: Ray isn't installed, the address is none, or no cluster answers there; says what to do.
    """
    if find_spec("ray") is None:
        raise UsageError(f"--on {SCHEME}{address} needs Ray, {UNINSTALLED}: {install('cluster')}")
    if address != "auto":
        check_address(address)
    import ray

    cloudpickle: Any = ray.cloudpickle
    cloudpickle.register_pickle_by_value(node_side)  # nodes have none of this package
    ends, logger = signal.getsignal(signal.SIGTERM), logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)  # Ray's greeting isn't for our users
    cluster = None
    # Ray prints a lost node's last logs on stdout, and at its shutdown what it kept back of them.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="shootout")
            signal.signal(signal.SIGTERM, ends)  # Ray's own handler would end this process at once
            cluster = RayCluster(ray, parcel)
            yield cluster
        except (OSError, RuntimeError, ValueError) as error:
            if cluster:
                raise
            why = str(error).splitlines()[0]
            raise UsageError(f"--on ray:{address}: {why}; docs/fleet.md has how to start one") from None
        finally:
            if cluster:
                cluster.is_closed = True
            logger.setLevel(level)
            ray.shutdown()
            cloudpickle.unregister_pickle_by_value(node_side)


def check_address(address: str) -> None:
    """Find out in seconds if anything answers at an address, for which Ray itself would wait a minute.

    Raises:
        UsageError: nothing answers, or the address is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal():
        why = "is neither ray:HOST:PORT nor ray:auto; `ray start --head` prints HOST:PORT"
        raise UsageError(f"--on {SCHEME + address!r} {why}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        fix = f"start a cluster there with `ray start --head --port={port}`"
        raise UsageError(f"--on ray:{address}: nothing answers there ({error}); {fix}") from None


class RayCluster:
    """A cluster that this process is connected to, whose nodes export what they measure.

    A place is a machine, or those with one label: Ray runs a task on one of these, and once more on another if that one
    is lost.
    """

    exports_there = True

    def __init__(self, ray: Any, parcel: Parcel) -> None:
        self._ray, self.is_closed, self._running = ray, False, list[Any]()
        self._sent = ray.put([(place, len(files), _tar(files)) for place, files in parcel.by_place.items()])
        self._nodes = dict[Place, list[dict[str, Any]]]()
        for node in [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]:
            name = node["Labels"].get(LABEL) or f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            self._nodes.setdefault(Place(id=name, name=name), []).append(node)
        if not self._nodes:
            raise UsageError("no node of the cluster offers CPUs: start one with `ray start`")

    @property
    def places(self) -> list[Place]:
        """List the machines that live and give out CPUs, those of a label as one."""
        return sorted(self._nodes, key=lambda place: place.name)

    def run(self, place: Place, task: Task) -> Answer:
        """Run a task to its end, called in a thread for each place; one that measures claims a whole node.

        Raises:
            NodeLost: the node is gone, or what was sent could not be started there.
        """
        from ray.exceptions import RayError

        nodes = self._nodes[place]
        given = {name: min(node["Resources"].get(name, 0.0) for node in nodes) for name in ("CPU", "GPU")}
        remote = self._ray.remote(node_side.run_sent).options(
            num_cpus=given["CPU"] if task.measures else 0,
            num_gpus=given["GPU"] if task.measures else 0,
            label_selector={_NODE_ID: f"in({','.join(node['NodeID'] for node in nodes)})"},
            runtime_env={"env_vars": dict(_AS_ITS_OWNER_SET_IT)},
            max_retries=1 if len(nodes) > 1 else 0,
        )
        found = remote.remote(task.name, [*task.words], task.folder, self._sent, is_new=task.is_new)
        self._running.append(found)
        try:
            while not self.is_closed:
                if self._ray.wait([found], timeout=LOOK_S)[0]:
                    return Answer(**self._ray.get(found))
        except RayError as error:
            raise NodeLost(f"it is gone, or could not start what was sent: {str(error).splitlines()[0]}") from None
        raise NodeLost("this command has ended")

    def stop(self) -> None:
        """Ask every task to end, and to return what it has."""
        for found in self._running:
            self._ray.cancel(found)


def _tar(files: Contents) -> bytes:
    made = io.BytesIO()
    write_tar(made, files)
    return made.getvalue()
