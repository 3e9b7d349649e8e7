"""The server of tools, by the SDK's own client: what agents are told, and that a call never outlives its end."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import yaml
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from support.console import children_of, environment, spin_study, state
from support.onnx_made import WEIGHT, linear
from typer.main import get_command

from lab.recipes import read_commands
from shootout.cli import app
from shootout.commands import told
from shootout.commands.tools import MORE, TOOLS, ToolResult, read_call
from shootout.core.constants import COPY
from shootout.core.errors import ShootoutError

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "results" / "reference"
SKILL = ROOT / "docs" / "agents" / "SKILL.md"
DEAF = "from support.deaf import deafen; deafen({}); from shootout.commands.told import main; main()"
CRASHES = (
    "import os, sys; sys.argv[2] == 'plan' and os.kill(os.getpid(), 9); from shootout.commands.told import main; main()"
)
GONE_S = 20


@pytest.mark.parametrize(
    "command",
    [
        "shootout ship 'my run' --max-error 1% --out model-1",
        "shootout run net.onnx --backends a,b --max-time 5m --out r --threads 2 --goal 'resolve 5%'",
        "shootout decide r other --p99 5ms",
        "shootout gate model-1 --candidate new.onnx --same-proof",
        "shootout show r --full",
        *read_commands(SKILL.read_text()),
    ],
)
def test_a_call_types_the_command_that_stands_for_it(command: str):
    words = shlex.split(command)[1:]
    name, arguments = read_call(command) or pytest.fail("no tool types it")
    assert sorted(TOOLS[name].type(arguments)) == sorted("--out" if word == "-o" else word for word in words)
    get_command(app).commands[words[0]].make_context(words[0], words[1:])  # refuses an unknown option


def test_lists_numbers_and_empty_texts_are_taken_as_agents_give_them():
    given = {"model": "x", "backends": ["a", "b"], "batch": 8, "inputs": "", "labels": None, MORE: ["--threads", 2]}
    assert TOOLS["run"].type(given) == ["run", "x", "--backends", "a,b", "--batch", "8", "--threads", "2"]
    assert TOOLS["gate"].type({"reference": "x", "slower": 0, MORE: []}) == ["gate", "x", "--slower", "0"]


def test_the_next_command_may_be_none_of_a_tool():
    assert read_call("cp -r a b && rm -r a") is read_call("cd x && shootout run net.onnx") is read_call("") is None
    assert read_call("shootout run --model net.onnx --batch 1") == ("run", {"model": "net.onnx", "batch": "1"})


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("run", {"modle": "x"}, "unknown argument 'modle': did you mean 'model'? known: "),
        ("run", {"backends": "onnxruntime"}, "the argument 'model' is missing: Model: "),
        ("run", {"model": "x", MORE: "--threads 2"}, "options is a list of words, "),
        ("show", {"run": "--help"}, "the argument 'run' is a text; received '--help'"),
        ("show", {"run": "r", MORE: ["--to", "x.csv"]}, "this tool only reads: leave out '--to', "),
        ("plan", {"model": "x", MORE: ["--on=ssh://a"]}, "this tool only reads: leave out '--on=ssh://a', "),
        ("verify", {"claim": 5, "a": "x", "run": "r"}, "the argument 'claim' is a text; received 5"),
        ("verify", {"claim": "slower", "a": ["x"], "run": "r"}, "the argument 'a' is a text; received ['x']"),
        ("verify", {"claim": "slower", "a": "x", "run": "r", "batch": 0}, "batch is for a race, and the run is "),
        ("verify", {"claim": "slower", "a": "x", "run": "r", MORE: ["--x"]}, "options is for a race, and the run "),
        (
            "verify",
            {"claim": "quicker", "a": "x", "run": "r"},
            "the claim 'quicker' can't be read: write 'faster', ",
        ),
        ("verify", {"claim": "faster", "a": "x"}, "verify needs either run, "),
        (
            "run",
            {"model": "x", "threads": 1},
            """'threads' has no argument of its own: write options: ["--threads", "1"]""",
        ),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(name: str, arguments: dict[str, Any], words: str):
    with pytest.raises(ShootoutError, match=rf"^{re.escape(words)}[^\n]*$"):
        told.call(name, arguments)


@pytest.mark.parametrize(
    ("run", "verdict", "interval"),
    [
        ("shootout", "ship", True),
        ("shootout-intel", "ship", False),  # tied with the others
        ("recipe-int8-slower", "ship", False),  # nothing else may be shipped
        ("width-sweep", "open", False),  # several groups
        ("footprints", "open", False),
    ],
)
def test_no_factor_is_told_without_its_interval(run: str, verdict: str, interval: bool):
    found = told.tell_run({"run": str(RUNS / run), "groups": (), "answer": ()}, ["show"])
    assert (found.verdict, found.interval is not None) == (verdict, interval)
    assert (found.terms is None) == (run == "width-sweep")
    told_ = "\n".join(
        [found.answer, *found.open, *found.notes, *(" · ".join(row.values()) for row in found.rows or ())]
    )
    factors = re.findall(r"(?:about )?[\d.,]+x (?:faster|slower)[^\n;·]*", told_)
    assert factors
    assert not [one for one in factors if not re.search(r"^about |\(\S+ to \S+\)|\((over|under) ", one)]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [("1.15x faster", "met"), ("1.9x faster", "unknown"), ("slower", "broken"), ("3x faster", "broken")],
)
def test_a_claim_is_judged_by_its_whole_interval(claim: str, verdict: str):
    asked = {"claim": claim, "a": "litert", "b": "onnxruntime", "run": str(RUNS / "shootout"), "group": ""}
    found = told.verify(asked)
    assert found.verdict == verdict
    assert (found.interval is None) == (verdict == "unknown") == bool(found.open)
    refused = told.verify({**asked, "claim": "faster", "a": "litert:cpu:int8-dynamic"})
    assert (refused.verdict, refused.notes) == ("met", ["litert:cpu:int8-dynamic may not be shipped: accuracy unknown"])


def test_what_a_figure_holds_for_comes_with_it():
    asked = {"claim": "same outputs within 1e-4", "a": "litert", "b": "onnxruntime", "run": str(RUNS / "shootout")}
    found = told.verify(asked)
    terms = "residual_mlp; random inputs; batch 1; 1 thread; AMD EPYC, 2 CPUs (VM); each process pinned to 1 CPU"
    assert (found.verdict, found.terms) == ("met", terms)
    shown = told.tell_run({"run": str(RUNS / "shootout"), "groups": (), "answer": ()}, ["show"])
    assert (shown.terms, [note for note in shown.notes if "saved in" in note]) == (terms, [])


def test_what_would_tell_a_p99_carries_its_limit():
    asked = {"claim": "p99 under 5ms", "a": "torch-eager", "run": str(RUNS / "shootout-intel")}
    found = told.verify(asked)
    assert (found.verdict, found.open) == ("unknown", ["70 of 100 calls in each restart"])
    assert found.next
    assert (found.next.arguments or {})["policy"] == "p99=5ms"


def test_a_claim_that_is_on_other_targets_is_refused_before_a_race(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told, "type_words", lambda _: pytest.fail("it raced"))
    with pytest.raises(ShootoutError, match="is on one target: leave out 'b', or judge it in its own call"):
        told.verify({"claim": "p99 under 5ms", "a": "a", "b": "b", "model": "x"})


def test_a_claim_whose_race_makes_no_run_here_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told, "type_words", lambda _: (0, {"groups": []}))
    with pytest.raises(ShootoutError, match=r"^no single run was measured: leave out .*--dry-run$"):
        told.verify({"claim": "slower", "a": "a", "b": "b", "model": "x", MORE: ["--dry-run"]})


def test_a_named_target_that_failed_is_told(monkeypatch: pytest.MonkeyPatch):
    rows = [{"arm": "a:cpu:fp32", "outcome": "failed", "reason": "no such operator"}, {"outcome": "measured"}]
    data = {"run": str(RUNS / "shootout"), "groups": (), "answer": (), "rows": rows}
    monkeypatch.setattr(told, "type_words", lambda _: (4, data))
    found = told.call("run", {"model": "x"})
    assert (found.verdict, found.open[-1]) == ("ship", "a:cpu:fp32 was named, and failed: no such operator")


def test_a_decision_is_told_with_why_not_each_other():
    data = {"runs": [str(RUNS / "decide-digits")], "policy": {"limits": {"max-drop": 0.005}}}
    found = told.tell_decision(data, ["decide"])
    assert (found.verdict, found.interval and found.interval.of) == ("ship", "time of onnxruntime ÷ time of litert")
    reasons = {row["target"]: row.get("why not") for row in found.rows or ()}
    assert reasons["litert:cpu:fp32"] is None
    assert "max-drop unknown" in str(reasons["onnxruntime:cpu:int8"])


def test_a_plan_tells_what_would_race_and_names_what_is_left_out_by_its_reason():
    why = {"reason": "b is not installed", "fix": "pip install b"}
    skipped = {"b:cpu:fp32": why, "b:cpu:int8": why}
    group = {"arms": ["a:cpu:fp32", f"a:cpu:fp32{COPY}"], "skipped": skipped, "model": None}
    data = {"groups": [group], "estimate_s": 3.0, "most_s": 90.0, "prepare_s": 5.0}
    found = told.tell_plan(data, ["run", "--dry-run", "my net.onnx"])
    assert found.answer.startswith("1 target would race: a:cpu:fp32; about 3 s at least and 90 s at most, ")
    assert found.open == ["b:cpu:fp32, b:cpu:int8: b is not installed; pip install b"]
    assert found.next
    assert (found.next.command, found.next.arguments) == ("shootout run 'my net.onnx'", {"model": "my net.onnx"})


def serve(folder: Path, test: Callable[[Client], Any], program: str = DEAF) -> None:
    """Start the server in a folder, with this program for its calls, and hand its client to a test."""
    code = f"from shootout.commands import mcp; mcp.PROGRAM = [mcp.sys.executable, '-c', {program!r}]; mcp.serve()"
    server = StdioServerParameters(command=sys.executable, args=["-c", code], env=environment(), cwd=folder)

    async def main() -> None:
        async with Client(server) as client:
            await test(client)

    anyio.run(main)


async def ask(client: Client, name: str, **arguments: Any) -> ToolResult:
    """Call a tool, and return its result, which the text has, too."""
    found = await client.call_tool(name, arguments)
    assert not found.is_error, found.content[0].text
    assert json.loads(found.content[0].text) == found.structured_content
    return ToolResult.model_validate(found.structured_content)


def test_the_server_lists_tools_tells_errors_and_outlives_a_call_that_is_killed(tmp_path: Path):
    async def test(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {*tools} == {"plan", "run", "show", "decide", "explain", "ship", "gate", "verify"}
        assert all("econd" in str(tool.description) or "inute" in str(tool.description) for tool in tools.values())
        hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
        assert {name for name, hint in hints.items() if hint.read_only_hint} == {"plan", "show", "decide"}
        assert all(hint.open_world_hint is hint.destructive_hint is not hint.read_only_hint for hint in hints.values())
        for name, words in (("plan", "killed by SIGKILL"), ("show", "no run in 'nowhere'"), ("shoe", "mean 'show'?")):
            arguments = {"model": "x"} if name == "plan" else {"run": "nowhere"}
            found = await client.call_tool(name, arguments)
            (content,) = found.content
            assert found.is_error
            assert words in content.text
            assert "\n" not in content.text
        shown = await ask(client, "show", run=str(RUNS / "shootout"))
        assert shown.next
        assert shown.next.tool == "ship"
        assert TOOLS["ship"].type(shown.next.arguments or {})[1] == str(RUNS / "shootout")  # written with a ~

    serve(tmp_path, test, CRASHES)


SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}
LONG = [pytest.param(how, marks=pytest.mark.long) for how in ("closed", *SIGNALS)]


@pytest.mark.parametrize("ends", ["cancelled", *LONG])
def test_a_race_ends_with_its_call_and_with_the_server(tmp_path: Path, ends: str):
    study, started = spin_study(tmp_path, restarts=50, work=2000), set[int]()
    others = children_of(os.getpid())  # an earlier test's, which stay
    journal = tmp_path / "out" / "journal.jsonl"

    async def test(client: Client) -> None:
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(ask, client, "run", model=str(study), out="out"))
            while len(started) < 3 or not journal.exists() or journal.read_bytes().count(b"\n") < 2:
                await anyio.sleep(0.05)
                started.update(set(children_of(os.getpid())) - set(others))
            if ends in SIGNALS:
                os.kill(min(started), SIGNALS[ends])
            calls.cancel_scope.cancel()
        if ends == "cancelled":
            await wait_until_gone(started - {min(started)})
            assert (await ask(client, "show", run="out")).verdict == "open"

    serve(tmp_path, test)
    anyio.run(wait_until_gone, started)


async def wait_until_gone(processes: set[int]) -> None:
    limit = time.monotonic() + GONE_S
    while left := [one for one in processes if state(one)]:
        assert time.monotonic() < limit, left
        await anyio.sleep(0.05)


def test_the_skill_has_the_front_matter_that_agents_look_for():
    text = SKILL.read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert {*head} == {"name", "description"}
    assert head["name"] == "shootout"
    assert len(head["description"]) <= 1024
    assert len(text.splitlines()) <= 80


@pytest.mark.long
def test_the_commands_of_the_skill_are_calls_that_lead_to_a_folder(tmp_path: Path):
    linear(tmp_path / "model.onnx")
    rows = np.random.default_rng(0).standard_normal((256, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    np.savez(tmp_path / "labels.npz", labels=(rows @ WEIGHT).argmax(1))
    found = dict[str, ToolResult]()

    async def test(client: Client) -> None:
        for command in [*read_commands(SKILL.read_text()), "shootout gate model-1 --slower 50% --max-time 1m"]:
            name, arguments = read_call(command) or pytest.fail(command)
            name = "plan" if "--dry-run" in arguments.get(MORE, ()) else name
            arguments[MORE] = [word for word in arguments.get(MORE, ()) if word != "--dry-run"]
            alone = {"backends": "onnxruntime"} if name in ("plan", "run") else {}  # it ships on a busy machine, too
            limit = {"max_time": "60s"} if "max_time" in arguments else {}
            found[name] = await ask(client, name, **{**alone, **arguments, **limit})
        asked = {"claim": "same outputs within 1e-3", "a": "openvino", "b": "", "model": "model.onnx", "run": ""}
        found["verify"] = await ask(client, "verify", **asked)

    serve(tmp_path, test)
    assert (tmp_path / "model-1" / "load.py").is_file()
    assert found["plan"].next
    assert found["plan"].next.tool == "run"
    assert (found["ship"].verdict, found["verify"].verdict) == ("written", "met")
    assert found["gate"].verdict in ("met", "unknown")  # by the machine
