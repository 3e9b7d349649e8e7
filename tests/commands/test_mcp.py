"""The server of tools, by the SDK's own client: what agents are told, and that a call never outlives its end."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest
import yaml
from support.console import children_of, environment, spin_study, state
from support.onnx_made import WEIGHT, linear
from typer.main import get_command

from lab.recipes import read_commands
from shootout import cli
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.gate.verdict import Gate
from shootout.commands import told
from shootout.commands.output import print_document
from shootout.commands.tools import ELSEWHERE, MEANT, MORE, OWN, ToolResult, make_tools
from shootout.core.constants import COPY
from shootout.core.errors import ShootoutError
from shootout.tell.study_options import BY_CLAIM

if TYPE_CHECKING:
    from mcp import Client

ROOT = Path(__file__).resolve().parents[2]
TOOLS = make_tools(cli.app)
RUNS = ROOT / "results" / "reference"
SKILL = ROOT / "docs" / "agents" / "SKILL.md"
DEAF = "from support.deaf import deafen; deafen({}); from shootout.commands.told import main; main()"
ENDS = f"""import os, subprocess, sys
'--dry-run' in sys.argv and os.kill(os.getpid(), 9)
'show' in sys.argv and sys.exit("shootout: no run in 'nowhere'")
'explain' in sys.argv and subprocess.run(['sleep', '600'])
{DEAF}"""
"""A program of calls: one is killed, one is refused, one waits for a process of its own, and others are real."""


@pytest.fixture(autouse=True)
def process_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a call changes in its process."""
    # It takes half a second, which each process of `-n` would pay, and keeps the stderr that it finds: not `capsys`'s.
    import_module("mcp.client.stdio")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.parametrize("name", TOOLS)
def test_a_call_types_words_that_its_command_takes(name: str):
    taken = TOOLS[name].schema["properties"]
    given = {argument: one["type"] == "boolean" or "1" for argument, one in taken.items() if argument != MORE}
    others = re.findall(r"(--[\w-]+)( [^, .])?", taken[MORE]["description"])
    more = [word for flag, value in others for word in (flag, value and "1") if word]
    words = TOOLS[name].type({**given, MORE: more})
    TOOLS[name].command.make_context(words[0], words[1:])  # refuses an unknown option or word
    own = {one.opts[0] for one in TOOLS[name].command.params if one.opts[0].startswith("--")}
    hidden = {f"--{word}" for word in BY_CLAIM} if name == "verify" else set()
    assert own - {word.partition("=")[0] for word in words} <= OWN | hidden | (
        set() if TOOLS[name].writes else ELSEWHERE
    )


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "run",
            {"model": "x", "backends": ["a", "b"], "batch": 8, "inputs": "", "labels": None, MORE: ["--threads", 2]},
            "x --backends=a,b --batch=8 --threads 2",
        ),
        ("run", {"model": ["a.onnx", "b.onnx"], "set": ["k=1", "m=2"]}, "a.onnx,b.onnx --set=k=1 --set=m=2"),
        ("run", {"model": "x", "fresh": True, "strict": False, "out": "-y"}, "x --fresh --out=-y"),
        ("run", {"model": "~/x", "inputs": "~/y", MORE: ["~/z"]}, "HOME/x --inputs=HOME/y HOME/z"),
        ("gate", {"slower": 0, "reference": "x", MORE: []}, "x --slower=0"),
        ("decide", {"run": ["r1", "r2"], "p99": "9ms"}, "r1 r2 --p99=9ms"),
        ("show", {"run": "x", "full": True}, "x --full"),
    ],
)
def test_arguments_are_typed_as_agents_give_them(name: str, arguments: dict[str, Any], words: str):
    assert TOOLS[name].type(arguments) == [name, *words.replace("HOME", str(Path.home())).split()]


def test_arguments_that_mean_more_here_or_are_always_refused_are_told_so():
    explain, verify = (TOOLS[name].schema["properties"] for name in ("explain", "verify"))
    assert explain["a"]["description"] != explain["b"]["description"]
    assert "`folder` of an earlier result" in TOOLS["show"].schema["properties"]["run"]["description"]
    assert not [name for name in BY_CLAIM if name in verify or f"--{name}" in verify[MORE]["description"].split()]
    for name, argument in MEANT:
        assert argument in TOOLS[name].schema["properties"]


def claim(text: str = "faster", **more: Any) -> dict[str, Any]:
    return {"claim": text, "a": "x", "b": "y"} | more


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("run", {"model": "x", "outt": "x"}, "No such option: --outt"),
        ("run", {"backends": "onnxruntime"}, "the argument 'model' is missing: Model: "),
        ("verify", {"claim": "faster", "b": "y"}, "the argument 'a' is missing: Target that "),
        ("ship", {"run": "x"}, "Missing option '--out' / '-o'."),
        ("run", {"model": "x", MORE: "--threads 2"}, "options is a list of words, "),
        ("run", {"model": "x", MORE: ["--help"]}, "`shootout run x --help` prints a text and no result: leave out "),
        ("show", {"run": "--help"}, "'run' can't begin with '-': received '--help'; "),
        (
            "run",
            {"model": "x", "out": True, "fresh": True},
            "'out' takes a text, a number or a list of these; received t",
        ),
        ("run", {"model": True}, "'model' takes a text, "),
        ("decide", {"run": ["r", "--help"]}, "'run' can't begin with '-': received '--help'; "),
        ("run", {"model": "x", "batch": {"a": 1}}, "'batch' takes a text, a number or a list of these; received {"),
        ("decide", {"run": "r", MORE: ["--p99"]}, "Option '--p99' requires an argument."),
        ("show", {"run": "r", MORE: ["--to", "x.csv"]}, "this tool only reads: leave out '--to', "),
        ("plan", {"model": "x", MORE: ["--on=ssh://a"]}, "this tool only reads: leave out '--on=ssh://a', "),
        ("verify", claim("5", run="r"), "the claim '5' can't be read: write 'faster', "),
        ("verify", claim(run="r", batch=0), "--batch (0,) is for a race, "),
        ("verify", claim(), "verify needs either run, "),
        ("verify", claim(model="x", group="g"), "--group is of a run, and a race has one group"),
        ("verify", claim("p99 under 5ms", model="x"), "the claim 'p99 under 5 ms' is on one target: leave out 'y', "),
        ("verify", claim(model="x", **{MORE: ["--dry-run"]}), "No such option: --dry-run"),
        ("verify", claim(model="x", **{MORE: ["--strict"]}), "leave out strict=: "),
        ("verify", claim(model="no.onnx"), "unknown backend 'y': "),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], name: str, arguments: dict[str, Any], words: str
):
    from shootout.commands.mcp import tell_ending

    try:
        pytest.fail(str(told.call(TOOLS[name].type(arguments))))
    except ShootoutError as error:
        sentence = str(error)
    except SystemExit:
        sentence = tell_ending(2, capsys.readouterr().err.splitlines())
    assert sentence.startswith(words)
    assert "\n" not in sentence


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
    found = told.call(["show", str(RUNS / run)])
    assert (found.verdict, found.interval is not None) == (verdict, interval)
    assert (found.terms is None) == (run == "width-sweep")
    lines = [found.answer, *found.open, *found.notes, *(" · ".join(row.values()) for row in found.rows or ())]
    factors = re.findall(r"(?:about )?[\d.,]+x (?:faster|slower)[^\n;·]*", "\n".join(lines))
    assert factors
    assert not [one for one in factors if not re.search(r"^about |\(\S+ to \S+\)|\((over|under) ", one)]


@pytest.mark.parametrize(("claim", "verdict"), [("1.15x faster", "met"), ("1.9x faster", "unknown")])
def test_a_claim_that_is_open_has_no_interval(claim: str, verdict: str):
    found = told.call(["verify", claim, "litert", "onnxruntime", "--run", str(RUNS / "shootout")])
    assert found.verdict == verdict
    assert (found.interval is None) == (verdict == "unknown") == bool(found.open)


def test_a_target_of_a_claim_that_may_not_be_shipped_is_told():
    found = told.call(["verify", "faster", "litert:cpu:int8-dynamic", "onnxruntime", "--run", str(RUNS / "shootout")])
    assert (found.verdict, found.notes) == ("met", ["litert:cpu:int8-dynamic may not be shipped: accuracy unknown"])


def test_what_a_figure_holds_for_comes_with_it():
    claimed = told.call(["verify", "same outputs within 1e-4", "litert", "--run", str(RUNS / "shootout")])
    shown = told.call(["show", str(RUNS / "shootout")])
    terms = "residual_mlp; random inputs; batch 1; 1 thread; AMD EPYC, 2 CPUs (VM); each process pinned to 1 CPU"
    assert (claimed.verdict, claimed.terms, shown.terms) == ("met", terms, terms)
    assert not [note for note in shown.notes if "saved in" in note]


def test_a_named_target_that_failed_is_told(monkeypatch: pytest.MonkeyPatch):
    document = analyse(RUNS / "shootout")
    failed = document.rows[0].model_copy(update={"outcome": "failed", "reason": "no such operator"})
    document = document.model_copy(update={"rows": (failed, *document.rows[1:])})

    def run(_: object) -> None:
        print_document(document, full=False, as_json=True)
        raise SystemExit(4)

    monkeypatch.setattr(cli, "main", run)
    assert told.call(["run", "x"]).open[-1] == f"{failed.arm} was named, and failed: no such operator"


def test_a_decision_is_told_with_why_not_each_other():
    found = told.call(["decide", str(RUNS / "decide-digits"), "--max-drop", "0.005"])
    assert (found.verdict, found.interval and found.interval.of) == ("ship", "time of onnxruntime ÷ time of litert")
    reasons = {row["target"]: row.get("why not") for row in found.rows or ()}
    assert reasons["litert:cpu:fp32"] is None
    assert "max-drop unknown" in str(reasons["onnxruntime:cpu:int8"])


def test_a_gate_without_a_verdict_is_unknown():
    given = {"reasons": ("time",), "reference": "m", "candidate": "c", "recorded": "m", "limit": 1.05, "run": "nowhere"}
    assert told.tell_found((Gate(outcome="undecided", **given), None), ["gate"]).verdict == "unknown"


def test_a_plan_tells_what_would_race_and_names_what_is_left_out_by_its_reason():
    why = {"reason": "b is not installed", "fix": "pip install b"}
    skipped = {"b:cpu:fp32": why, "b:cpu:int8": why}
    group = {"arms": ["a:cpu:fp32", f"a:cpu:fp32{COPY}"], "skipped": skipped, "model": None}
    data = {"groups": [group], "estimate_s": 3.0, "most_s": 90.0, "takes": "about 3 s at least"}
    found = told.tell_found(data, ["run", "--dry-run", "my net.onnx"])
    assert found.answer == "1 target would race: a:cpu:fp32; about 3 s at least."
    assert found.open == ["b:cpu:fp32, b:cpu:int8: b is not installed; pip install b"]
    assert found.next == "shootout run 'my net.onnx'"


def serve(folder: Path, test: Callable[[Client], Any], program: str = DEAF) -> None:
    """Start the server in a folder, with this program for its calls, and hand its client to a test."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    call = f"mcp.PROGRAM = [mcp.sys.executable, '-c', {program!r}]"
    code = f"from shootout.cli import app; from shootout.commands import mcp; {call}; mcp.serve(app)"
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


def test_the_server_lists_tools_tells_errors_and_outlives_calls_that_are_killed_or_cancelled(tmp_path: Path):
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
        others = children_of(os.getpid())
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(ask, client, "explain", run="r"))
            while len(started := children_of(os.getpid()) - others) < 2:
                await anyio.sleep(0.05)
            calls.cancel_scope.cancel()
        await wait_until_gone(started)
        asked = claim("same outputs within 1e-4", a="litert", b="onnxruntime", run=str(RUNS / "shootout"))
        assert (await ask(client, "verify", **asked)).verdict == "met"  # its interval has no value

    serve(tmp_path, test, ENDS)


SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}


@pytest.mark.long
@pytest.mark.parametrize("ends", ["cancelled", "closed", *SIGNALS])
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
    while any(map(state, processes)):
        await anyio.sleep(0.05)


def test_the_skill_has_the_front_matter_that_agents_look_for_and_commands_that_are_there():
    text = SKILL.read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert {*head} == {"name", "description"}
    assert head["name"] == "shootout"
    assert len(head["description"]) <= 1024
    assert len(text.splitlines()) <= 80
    for _, name, *words in map(shlex.split, read_commands(text)):
        get_command(cli.app).commands[name].make_context(name, words)  # refuses an unknown option


@pytest.mark.long
def test_the_tools_lead_from_a_model_to_a_folder_and_a_claim(tmp_path: Path):
    linear(tmp_path / "model.onnx")
    rows = np.random.default_rng(0).standard_normal((256, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    np.savez(tmp_path / "labels.npz", labels=(rows @ WEIGHT).argmax(1))
    # One target ships on a busy machine, too.
    raced = {"model": "model.onnx", "backends": "onnxruntime", "max_time": "60s", "out": "r1"}
    data = {"inputs": "rows.npz", "labels": "labels.npz", MORE: ["--threads", "1"]}

    async def test(client: Client) -> None:
        assert str((await ask(client, "plan", **raced)).next).startswith("shootout run model.onnx ")
        assert (await ask(client, "run", **raced, **data)).verdict == "ship"
        assert (await ask(client, "decide", run="r1", max_drop="1pp")).verdict == "ship"
        assert (await ask(client, "ship", run="r1", out="model-1")).verdict == "written"
        asked = {"reference": "model-1", "slower": "50%", "max_time": "1m"}
        assert (await ask(client, "gate", **asked)).verdict in ("met", "unknown")  # by the machine
        asked = {"claim": "same outputs within 1e-3", "a": "openvino", "b": "", "model": "model.onnx", "run": ""}
        assert (await ask(client, "verify", **asked)).verdict == "met"

    serve(tmp_path, test)
    assert (tmp_path / "model-1" / "load.py").is_file()
