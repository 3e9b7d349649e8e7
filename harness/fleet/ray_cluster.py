"""Reach a Ray cluster: its nodes, and jobs of ours on them. The only module that imports Ray."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shootout.errors import UNINSTALLED, UsageError, install
from shootout.fleet import node_side
from shootout.fleet.node_kinds import LABEL, ClusterNode
from shootout.fleet.nodes import ENTRY, NodeLost, Supply
from shootout.fleet.parcel import Parcel

SCHEME = "ray:"
ANSWERS_S = 5.0
"""A cluster that answers does so in milliseconds."""
_NODE_ID = "ray.io/node-id"
"""The label by which Ray names each node."""
_AS_ITS_OWNER_SET_IT = {"RAY_worker_niceness": "0", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Else Ray runs our process, and all arms, at niceness 15, and shows a GPU only to tasks that claim one."""


@dataclass(frozen=True, slots=True, eq=False)
class RayJob:
    """A job that was given to Ray: the actor that runs it, and the reference of what `NodeJob.run` returns."""

    actor: Any
    result: Any


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
    ends = signal.getsignal(signal.SIGTERM)
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)  # Ray's greeting isn't for our users
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="shootout")
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"--on ray:{address}: {str(error).splitlines()[0]}; docs/fleet.md has how to start one"
        ) from None
    finally:
        logger.setLevel(level)
    signal.signal(signal.SIGTERM, ends)  # Ray's own handler would end this process at once
    try:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            try:  # Ray prints a lost node's last logs on stdout, and at its shutdown what it kept back of them
                yield RayCluster(ray, parcel)
            finally:
                ray.shutdown()
    finally:
        cloudpickle.unregister_pickle_by_value(node_side)


def check_address(address: str) -> None:
    """Find out in seconds if anything answers at an address, for which Ray itself would wait a minute.

    Raises:
        UsageError: nothing answers, or the address is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal():
        raise UsageError(
            f"--on {SCHEME + address!r} is neither ray:HOST:PORT nor ray:auto; `ray start --head` prints HOST:PORT"
        )
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--on ray:{address}: nothing answers there ({error}); start a cluster there with "
            f"`ray start --head --port={port}`"
        ) from None


class RayCluster:
    """A cluster that this process is connected to; its nodes export what they measure."""

    were_named = False

    def __init__(self, ray: Any, parcel: Parcel) -> None:
        self._ray = ray
        self._sent = [ray.put(parcel.package), ray.put(parcel.files)]

    def nodes(self) -> list[ClusterNode]:
        """List the nodes that live and give out CPUs, in the order of their names."""
        nodes = [
            ClusterNode(
                id=node["NodeID"],
                name=f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:6]})",
                label=node["Labels"].get(LABEL, ""),
                cpus=node["Resources"]["CPU"],
                gpus=node["Resources"].get("GPU", 0.0),
            )
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        ]
        return sorted(nodes, key=lambda node: (node.label, node.name))

    def ask(self, node: ClusterNode, job: Mapping[str, Any]) -> RayJob:
        """Start a job on a node as `Nodes` has it: it claims none of the node's CPUs."""
        return self._start_job([node], job, b"", claims=False, retries=0)

    def measure(
        self,
        nodes: Sequence[ClusterNode],
        job: Mapping[str, Any],
        folder: bytes = b"",
        delivered: Mapping[str, Mapping[str, Path]] | None = None,
        supply: Supply | None = None,
    ) -> RayJob:
        """Start a job on one of these nodes as soon as all of it is free, and once more if that node is lost.

        Nothing is delivered or supplied, since these nodes export by themselves.
        """
        assert not delivered, "nodes of a Ray cluster export what they measure"
        assert not supply, "and what they add to it"
        return self._start_job(nodes, job, folder, claims=True, retries=1 if len(nodes) > 1 else 0)

    def _start_job(
        self, nodes: Sequence[ClusterNode], job: Mapping[str, Any], folder: bytes, *, claims: bool, retries: int
    ) -> RayJob:
        actor = (
            self._ray.remote(node_side.NodeJob)
            .options(
                num_cpus=nodes[0].cpus if claims else 0,
                num_gpus=nodes[0].gpus if claims else 0,
                label_selector={_NODE_ID: f"in({','.join(node.id for node in nodes)})"},
                runtime_env={"env_vars": dict(_AS_ITS_OWNER_SET_IT)},
                max_concurrency=2,  # `stop` is heard while `run` goes on
                max_restarts=retries,
                max_task_retries=-1 if retries else 0,  # as long as the actor is restarted
            )
            .remote()
        )
        return RayJob(actor, actor.run.remote(ENTRY, dict(job), folder, *self._sent))

    def wait(self, jobs: Sequence[RayJob], seconds: float, *, until_all: bool = False) -> list[RayJob]:
        """Wait for jobs as `Nodes` has it."""
        number = len(jobs) if until_all else 1
        ended, _ = self._ray.wait([job.result for job in jobs], timeout=seconds, num_returns=number)
        return [job for job in jobs if job.result in ended]

    def result(self, job: RayJob) -> dict[str, Any]:
        """Return what `NodeJob.run` returned.

        Raises:
            NodeLost: the node is gone, or what was sent could not be started there.
        """
        from ray.exceptions import ActorUnschedulableError, RayError, RayTaskError

        try:
            answer: dict[str, Any] = self._ray.get(job.result)
        except ActorUnschedulableError:
            raise NodeLost("it is gone from the cluster") from None
        except RayTaskError as error:
            raise NodeLost(f"what was sent could not be started: {error.cause or error}") from None
        except RayError:
            raise NodeLost("it is gone, or its process") from None
        return answer

    def node_of(self, job: RayJob) -> None:
        """Return None: Ray chooses the node, and another one if that is lost."""

    def stop(self, job: RayJob) -> None:
        """Ask a job to end as `Nodes` has it."""
        job.actor.stop.remote()

    def release(self, job: RayJob) -> None:
        """End a job and give its node back."""
        with suppress(Exception):  # the node may be gone
            self._ray.kill(job.actor)
