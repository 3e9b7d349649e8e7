"""What is timed, by whom, where and in which order."""

from __future__ import annotations

from .mutation import Mutation

LIVE = "tests/race/test_live.py"
RESTART = "tests/race/test_restart.py"
RESUME = "tests/race/test_resume.py"
PROCESS = "tests/worker/test_process.py"
WIRING = "tests/race/test_wiring.py"
RECHECKS = "tests/worker/test_rechecks.py"

MUTATIONS = (
    Mutation(
        "a reading above 1.05 of the fastest counts",
        "harness/worker/blocks.py",
        "        return np.frombuffer(readings, dtype=np.int64, count=count).copy()",
        "        found = np.frombuffer(readings, dtype=np.int64, count=count).copy()\n"
        "        return found[found <= 1.05 * found.min()]",
        (LIVE, WIRING),
    ),
    Mutation(
        "a block's last reading counts",
        "harness/worker/blocks.py",
        "count=count).copy()",
        "count=max(1, count - 1)).copy()",
        (LIVE, WIRING),
    ),
    Mutation(
        "a reading of several calls is divided by their number",
        "harness/worker/blocks.py",
        "min_calls=min_calls) / k",
        "min_calls=min_calls) / 1",
        (LIVE, WIRING),
    ),
    Mutation(
        "calls rotate through all input buffers",
        "harness/clock.py",
        "        buffer = buffer + 1 if buffer + 1 < buffers else 0\n        if ended",
        "        if ended",
        (LIVE, WIRING, "tests/test_clock.py"),
    ),
    Mutation(
        "each block of one scope begins after its own lead-in",
        "harness/worker/blocks.py",
        "        clock.lead_in(self._calls[scope], len(self.buffers), calls=LEAD_IN_CALLS, ns=LEAD_IN_NS)\n",
        "",
        (LIVE, WIRING),
    ),
    Mutation(
        "end to end stages its inputs inside the bracket",
        "harness/worker/blocks.py",
        "raw = execute(stage(buffers[buffer], buffer))",
        "raw = execute(handles[buffer])",
        (LIVE, WIRING),
    ),
    Mutation(
        "compute waits for the device",
        "harness/worker/blocks.py",
        "        raw = execute(handles[buffer])\n        synchronize()",
        "        raw = execute(handles[buffer])",
        (LIVE, WIRING),
    ),
    Mutation(
        "several instances are verified while all work",
        "harness/worker/__main__.py",
        "blocks.outputs if isinstance(blocks, Instances) and len(self._sessions) > 1 else None",
        "None",
        (WIRING, "tests/race/test_throughput.py"),
    ),
    Mutation(
        "where a worker's threads have gone to is judged",
        "harness/worker/__main__.py",
        "            strayed=self._strayed,",
        "            strayed=None,",
        (WIRING, LIVE, "tests/worker/test_misbehaving.py"),
    ),
    Mutation(
        "a worker is pinned before it starts",
        "harness/host/child.py",
        "with on_cpus(cpus) if cpus is not None else nullcontext():",
        "with nullcontext():",
        (PROCESS,),
    ),
    Mutation(
        "a worker imports nothing from the current folder",
        "harness/host/child.py",
        'sys.executable, "-P", "-m"',
        'sys.executable, "-m"',
        (PROCESS, "tests/host/test_child.py"),
    ),
    Mutation(
        "the parent is off the arms' CPUs in the race",
        "harness/race/runner.py",
        "with on_cpus(self.plan.placement.parent):",
        "with on_cpus(self.plan.placement.parent | self.plan.placement.arms):",
        (WIRING, RESUME),
    ),
    Mutation(
        "an arm plays on the arms' CPUs",
        "harness/race/live.py",
        "WorkerProcess(environment, self.place(arm, OWN), log, other, starter)",
        "WorkerProcess(environment, self.placement.parent | self.placement.arms, log, other, starter)",
        (LIVE, WIRING),
    ),
    Mutation(
        "turns are shuffled in each round",
        "harness/race/restart.py",
        "for performance in _shuffled(self.performances, self.rng):",
        "for performance in list(self.performances):",
        (RESTART,),
    ),
    Mutation(
        "scopes are shuffled in each round",
        "harness/race/restart.py",
        "scopes = tuple(_shuffled(list(Scope), self.rng))",
        "scopes = tuple(Scope)",
        (RESTART,),
    ),
    Mutation(
        "spawns are shuffled",
        "harness/race/restart.py",
        "sorted(_shuffled(arms, self.rng),",
        "sorted(list(arms),",
        (RESTART,),
    ),
    Mutation(
        "an arm is held after its turn",
        "harness/race/restart.py",
        "        performance.turns.append(turn)\n        player.hold()",
        "        performance.turns.append(turn)",
        (RESTART,),
    ),
    Mutation(
        "an arm that has not passed the gate is not timed",
        "harness/race/restart.py",
        "            if entrance.error:\n                raise entrance.error\n",
        "",
        (RESTART,),
    ),
    Mutation(
        "an arm that fails is killed",
        "harness/race/restart.py",
        "            if player:\n                player.kill()\n            is_late",
        "            is_late",
        (RESTART,),
    ),
    Mutation(
        "a block has its median",
        "harness/race/queue.py",
        "float(np.median(turn.latency_ns[scope]))",
        "float(np.mean(turn.latency_ns[scope]))",
        (RESTART, WIRING, "tests/race/test_drills.py"),
    ),
    Mutation(
        "a restart counts by its unflagged rounds",
        "harness/race/queue.py",
        "kept = counted(medians, flagged_blocks(performance, found.flagged))",
        "kept = counted(medians, ())",
        (RESTART, WIRING),
    ),
    Mutation(
        "a worker that does not answer is given up",
        "harness/worker/process.py",
        "            if not self._is_answered(timeout_s):",
        "            if not self._is_answered(1e9):",
        (PROCESS,),
    ),
    Mutation(
        "a stop counts once it is seen",
        "harness/worker/process.py",
        "        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)\n",
        "",
        (
            PROCESS,
            "tests/race/test_pausing.py",
        ),
    ),
    Mutation(
        "a worker's scratch goes with it",
        "harness/host/child.py",
        "        self._words.close()\n        self._scratch.close()",
        "        self._words.close()",
        (PROCESS, "tests/host/test_child.py"),
    ),
    Mutation(
        "a killed arm is begun anew",
        "harness/race/restart.py",
        "                    self._lost[arm.label] = why",
        "                    pass",
        (RESTART,),
    ),
    Mutation(
        "a timed arm is asked again",
        "harness/worker/__main__.py",
        "        self._rechecks = None if verified.fault else Rechecks.of(claim, verified)\n",
        "",
        (RECHECKS, "tests/worker/test_misbehaving.py"),
    ),
    Mutation(
        "what a timed arm then answered wrongly fails it",
        "harness/race/live.py",
        "        if fault := self._clock.find_fault(self._built.arm, turn, watch, self._per_reading) or turn.fault:\n",
        "        if fault := self._clock.find_fault(self._built.arm, turn, watch, self._per_reading):\n",
        (RECHECKS, LIVE, "tests/worker/test_misbehaving.py"),
    ),
    Mutation(
        "a worker's clock is held against the harness's",
        "harness/race/live.py",
        "        if fault := self._clock.find_fault(self._built.arm, turn, watch, self._per_reading) or turn.fault:\n",
        "        if fault := turn.fault:\n",
        (LIVE, "tests/worker/test_misbehaving.py"),
    ),
    Mutation(
        "a timed arm is asked what it has not seen",
        "harness/worker/verification.py",
        "            _fill(memory, inputs)\n            outputs",
        "            outputs",
        (RECHECKS,),
    ),
    Mutation(
        "a worker dies with its parent",
        "harness/host/child.py",
        "        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)\n",
        "        pass\n",
        (PROCESS, "tests/host/test_child.py"),
    ),
    Mutation(
        "Ctrl-C is the parent's alone",
        "harness/host/child.py",
        "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    if sys",
        "    if sys",
        (PROCESS,),
    ),
)
