"""What is written down, recalled and taken again."""

from __future__ import annotations

from .mutation import Mutation

RESUME = "tests/race/test_resume.py"
JOURNAL = "tests/journal/test_journal.py"
POWER_CUT = "tests/journal/test_power_cut.py"
RECORDING = "tests/race/test_recording.py"
BUILDER = "tests/build/test_builder.py"
WIRING = "tests/race/test_wiring.py"

MUTATIONS = (
    Mutation(
        "samples hold every reading",
        "harness/journal/samples.py",
        'columns["latency_ns"] += latency.tolist()',
        'columns["latency_ns"] += np.minimum(latency, np.quantile(latency, 0.99)).tolist()',
        (WIRING, "tests/journal/test_pack.py"),
    ),
    Mutation(
        "samples are on disk before the journal names them",
        "harness/journal/samples.py",
        "            os.fsync(file.fileno())\n",
        "",
        (WIRING, JOURNAL),
    ),
    Mutation(
        "samples appear whole or not at all",
        "harness/journal/samples.py",
        '    temporary = path.with_suffix(".tmp")',
        "    temporary = path",
        (WIRING, JOURNAL),
    ),
    Mutation(
        "samples are written before the journal names them",
        "harness/race/recording.py",
        "        samples.write(self.out, name, turns, [(p.arm.label, p.single_ns) for p in played.performances])\n"
        "        rounds = Rounds(",
        "        rounds = Rounds(",
        (WIRING, RESUME),
    ),
    Mutation(
        "a line that was changed is not believed",
        "harness/journal/journal.py",
        "        if zlib.crc32(text) != int(summed[1], 16):\n            return None\n",
        "",
        (JOURNAL, POWER_CUT),
    ),
    Mutation(
        "a line of today without its checksum is not believed",
        "harness/journal/journal.py",
        "    elif version >= _SUMMED:\n        return None\n",
        "",
        (JOURNAL, POWER_CUT),
    ),
    Mutation(
        "a new name of samples is on disk too",
        "harness/journal/samples.py",
        "        sync_folder(path.parent)\n",
        "",
        (WIRING, POWER_CUT),
    ),
    Mutation(
        "lines are on disk when append returns",
        "harness/journal/journal.py",
        "            os.fsync(self._file)\n            self._size",
        "            self._size",
        (JOURNAL,),
    ),
    Mutation(
        "the lines of a restart go out at once",
        "harness/race/recording.py",
        "self.file.append(*lines, rounds)",
        "[self.file.append(line) for line in (*lines, rounds)]",
        (WIRING, RECORDING),
    ),
    Mutation(
        "an open restart does not count",
        "harness/journal/journal.py",
        "    if not isinstance(last, Rounds):\n        return [last]",
        "    if not isinstance(last, Rounds):\n        return [*played, last]",
        (JOURNAL, RESUME, WIRING),
    ),
    Mutation(
        "a restart counts only by its own lines",
        "harness/journal/journal.py",
        "if isinstance(line, Played) and (line.group, line.restart) == mine",
        "if isinstance(line, Played)",
        (JOURNAL, WIRING),
    ),
    Mutation(
        "a resumed run cuts off a torn tail",
        "harness/journal/journal.py",
        "        os.ftruncate(self._file, sound_bytes)\n",
        "",
        (JOURNAL,),
    ),
    Mutation(
        "after a resume the restarts go on counting",
        "harness/journal/group.py",
        "return max(seen, default=-1) + 1",
        "return 0",
        (WIRING, RESUME, "tests/race/test_queue.py"),
    ),
    Mutation(
        "setbacks are remembered over a resume",
        "harness/race/recording.py",
        "                    self._gone[line.group, line.arm.label] = line.why",
        "                    pass",
        (WIRING, RESUME),
    ),
    Mutation(
        "builds are told once, over a resume too",
        "harness/race/recording.py",
        "                self._prepared.add((line.group, line.arm))",
        "                pass",
        (WIRING, RESUME),
    ),
    Mutation(
        "a run does not go on on another machine",
        "harness/journal/run_folder.py",
        '    return "" if history.complete or is_from_here(history) else ELSEWHERE\n',
        '    return ""\n',
        (WIRING, RESUME),
    ),
    Mutation(
        "a run does not go on with other versions",
        "harness/host/environment.py",
        '"gpus", "python", "libraries", "variables")',
        '"gpus", "variables")',
        (WIRING,),
    ),
    Mutation(
        "a run does not go on with another study",
        "harness/journal/run_folder.py",
        "    if history.header.identity != plan.identity:",
        "    if False:",
        (RESUME,),
    ),
    Mutation(
        "a built file that has changed is built again",
        "harness/build/builder.py",
        "                if exported.sha256(folder / name) != digest:",
        "                if False:",
        (BUILDER, WIRING),
    ),
    Mutation(
        "code beside the adapter's own belongs to its build",
        "backends/code.py",
        '        return [one for end in ("*.py", "*.txt") for one in folder.glob(end) if one.name not in SHIPPING]',
        "        return [file]",
        (BUILDER,),
    ),
    Mutation(
        "a probe that found another precision keeps an arm out, cached or not",
        "harness/build/builder.py",
        "        if runs and (fault := probe_fault(found.probe, arm.target)):\n            raise ArmFailed(fault)\n",
        "",
        (BUILDER,),
    ),
)
