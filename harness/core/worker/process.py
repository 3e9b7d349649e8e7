"""A worker as its parent sees it: start it, command it, hold it still, and leave nothing of it behind.

Every wait is a `poll` on the pipe, so the parent sleeps while an arm runs; once a second it looks whether the worker
still lives, since what that started may hold the pipe open. A stop counts once `waitid` has seen it.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from shootout.core.clock import Deadline
from shootout.core.errors import ArmFailed, NotRun, NotRunKind, SkippedArm, one_line
from shootout.core.host.child import LOOKING_S, Child
from shootout.core.host.placement import hint
from shootout.core.messages import Fault
from shootout.core.worker import reported
from shootout.core.worker.fork_server import WORKER
from shootout.core.worker.worker import Worker

if TYPE_CHECKING:
    from shootout.core.worker.availability import PythonInterpreter
    from shootout.core.worker.fork_server import ForkServer

_GOODBYE_S = 5.0
_MOST_STALLED_S = 30.0
"""An answer that is on its way comes without a pause as long as this."""
_LONGEST_NAME = 150


class WorkerProcess(Child):
    """A worker, started or forked, and the pipe to it.

    Args:
        environment: its whole environment; thread counts are in it.
        cpus: the CPUs it may run on, set before it starts so that no library sees others.
        log: where its output goes, behind what is there; its own last lines become a failure's last words.
        interpreter: the Python that it runs under, when not ours.
        starter: what it is forked from, if that can be; None starts it.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        cpus: frozenset[int],
        log: Path,
        interpreter: PythonInterpreter | None = None,
        starter: ForkServer | None = None,
    ) -> None:
        self._interpreter = interpreter
        start = partial(
            self._start,
            environment=interpreter.environment(environment) if interpreter else environment,
            executable=interpreter.path if interpreter else None,
            cpus=cpus,
            log=log,
        )
        try:
            start(fork=starter.fork if starter else None)
        except ChildProcessError:
            start()

    def _start(self, **how: Any) -> None:
        """Start it with a pipe of its own: a worker that failed to be forked may hold an older pipe."""
        ours, theirs = socket.socketpair()
        # A worker that dies within an answer leaves half of it, and what it forked may hold the other end open.
        longest = struct.pack("ll", *divmod(int(_MOST_STALLED_S * 1e6), 10**6))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, longest)
        with ours, theirs:
            super().__init__(WORKER, [str(theirs.fileno())], pass_fds=(theirs.fileno(),), **how)
            self._pipe: Connection[Any, Any] = Connection(os.dup(ours.fileno()))

    def ask(self, command: str, most_s: float, part_s: float = math.inf, **arguments: Any) -> Any:
        """Send a command and wait for its answer.

        Args:
            most_s: the most seconds to wait, however much time there is.
            part_s: the seconds of the run's time that it may take.

        Raises:
            ArmFailed: the command raised, the process died, or its answer isn't valid, or none came in time.
            SkippedArm: the worker reports that this can't run here.
        """
        timeout_s = max(0.0, min(most_s, part_s))
        try:
            self._pipe.send((command, arguments))
            if not self._is_answered(timeout_s):
                raise no_answer(command, timeout_s, had_part=part_s < most_s, told=self.told)
            answer = _check_answer(command, self._pipe.recv())
        except ArmFailed:
            raise
        except (EOFError, ConnectionError, BlockingIOError):
            ended = self.wait(_GOODBYE_S) or "closed its pipe and went on running; it was killed"
            kind = NotRunKind.KILLED if self.was_killed else NotRunKind.FAILED
            raise ArmFailed(self.told(f"{ended} during {command!r}"), kind) from None
        except Exception as error:  # a type that isn't known here; or half a record
            raise ArmFailed(f"{command} gave an answer that can't be read: {one_line(str(error))}") from None
        if isinstance(answer, NotRun):
            raise SkippedArm(answer.reason, answer.fix, answer.kind)
        if not isinstance(answer, Fault):
            return answer
        if self._interpreter and answer.missing:
            package = answer.missing.partition(".")[0]
            reason, fix = f"@{self._interpreter.name} has no {package}", self._interpreter.install([package])
            raise SkippedArm(reason, fix, NotRunKind.NOT_INSTALLED)
        setting = hint(answer.message.strip("'")) if answer.kind == "KeyError" else ""
        raise ArmFailed(f"{command} raised {answer.kind}: {one_line(answer.message)}{setting}")

    def _is_answered(self, timeout_s: float) -> bool:
        """Wait until an answer, or the pipe's end, can be read; return whether it came in time.

        Raises:
            EOFError: the worker has ended, though its pipe has not.
        """
        limit = Deadline(timeout_s)
        while not self._pipe.poll(max(0.0, min(LOOKING_S, limit.left_s))):
            if self.wait(0.0):
                if self._pipe.poll(LOOKING_S):
                    return True
                raise EOFError
            if not limit.allows(0.0):
                return False
        return True

    def kill(self) -> None:
        """End it, stopped or not, with everything it started; harmless when it is gone."""
        super().kill()
        self._pipe.close()


@cache
def _get_return_type(command: str) -> Any:
    return get_type_hints(getattr(Worker, command))["return"]


def _check_answer(command: str, answer: Any) -> Any:
    """Return an answer of the type that the worker's method promises, or one of the two that mean there is none.

    Raises:
        ArmFailed: it is nothing of these.
    """
    place = f"its answer to {command}: "
    if isinstance(answer, NotRun | Fault):
        return reported.check_type(type(answer), answer, place)
    return reported.check_answer(_get_return_type(command), answer, place)


def no_answer(command: str, waited_s: float, *, had_part: bool, told: Callable[[str], str] = str) -> ArmFailed:
    """Return the error of a worker that gave no answer in time.

    Args:
        had_part: whether that time was its part of `--max-time`. The arm may only be slow, so the same command tries it
            again, behind the others.
        told: adds the process's last words.
    """
    error = ArmFailed(told(f"hung: no answer to {command!r} within {waited_s:.0f} s; it was killed"), hung=True)
    if had_part:
        stopped = told(f"its {command} was stopped after {waited_s:.1f} s")
        fix = "run the same command again with more time; this target is then started after the others"
        error.why = NotRun(NotRunKind.NOT_REACHED, f"--max-time left it no more time: {stopped}", fix)
    return error


def log_name(text: str) -> str:
    """Name the log file of a label or target. File systems end names at 255 bytes, and settings may be long."""
    name = "".join(letter if letter.isalnum() else "-" for letter in text)
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{name}.log"
