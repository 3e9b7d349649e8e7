"""Serve tools to agents over MCP: each call is our own command line in a process of its own.

So neither a crash nor a long race takes the server down, and a call that is cancelled ends with all that it started.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import Any

import typer

import shootout
from shootout.commands.tools import Tool, ToolResult, make_tools
from shootout.core.errors import ShootoutError, Unavailable, one_line, unknown
from shootout.core.host.child import ending
from shootout.core.install import install

try:
    import anyio
    import mcp_types as types
    from anyio.abc import Process
    from anyio.streams.text import TextReceiveStream
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
except ImportError:
    raise Unavailable(f"the server needs the package mcp: {install('mcp')}") from None

PROGRAM: Sequence[str] = (sys.executable, "-P", "-m", "shootout.commands.told")
"""The program of a call; this process's id and the words of a command follow."""
GRACE_S = 5.0
"""Time for a call that is cancelled to end by itself; what it measured is kept."""
LAST_LINES = 20
ENDS = ("shootout: ", "Error: ")
"""Begin the lines of standard error that say why a command ends."""
INSTRUCTIONS = """\
shootout answers with evidence which runtime, device and precision to ship for a model on this machine.
Pass `answer` on as it is, together with `terms`: threads, pinned CPUs, batch, machine, and the noise unless it is low.
In words of your own call a target faster only if `verify` returns `met`, and then with its `interval`.
No other verdict allows it: `ship` of a choice lets you deploy it, `written` means that a folder holds what was named.
`about 1.4x faster, open` has no verdict yet. `open` tells what isn't known.
Errors of outputs are against the reference outputs: the model in float64, or of an ONNX file ONNX Runtime without
optimizations. They are not against another target.
`next` proposes a command, which nothing has run. As a call, `shootout ship r1 -o m` is ship with {"run": "r1",
"options": ["-o", "m"]}. Each option is also an argument by its name: {"run": "r1", "out": "m"}.
Paths are relative to the folder in which this server was started."""


def serve(app: typer.Typer) -> None:
    """Serve the tools of a command line on standard input and output until the client closes them."""
    if sys.stdin.isatty():
        sys.stderr.write("serves an MCP client on standard input and output; docs/agents/README.md has its settings\n")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # nothing else ends a thread that reads; calls end with this process
    anyio.run(_serve, make_tools(app))


async def _serve(tools: Mapping[str, Tool]) -> None:
    listed = types.ListToolsResult(tools=[describe_tool(name, tool) for name, tool in tools.items()])

    async def list_tools(*_: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name not in tools:
                raise unknown("tool", params.name, tools)
            text = await run_apart(tools[params.name].type(params.arguments or {}), context.session.report_progress)
        except ShootoutError as error:  # is a result, too: the one sentence of the command line
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=json.loads(text))

    server = Server(
        "shootout",
        version=shootout.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def describe_tool(name: str, tool: Tool) -> types.Tool:
    """Describe a tool to a client, with the schemas of what it takes and returns."""
    return types.Tool(
        name=name,
        description=tool.about,
        input_schema=tool.schema,
        output_schema=ToolResult.model_json_schema(),
        # Its options may hold `--fresh`, which starts over, and `--on`, which measures on other machines.
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes, destructive_hint=tool.writes, open_world_hint=tool.writes
        ),
    )


async def run_apart(words: Sequence[str], report: Callable[..., Awaitable[None]]) -> str:
    """Run a command in a process and a session of its own, and return the line that it prints.

    Args:
        report: gets each line of its standard error with its number.

    Raises:
        ShootoutError: it ended without a result; says why.
    """
    heard, numbers = deque[str](maxlen=LAST_LINES), itertools.count(1)
    with TemporaryFile() as printed:
        typed = [*PROGRAM, str(os.getpid()), *words]
        process = await anyio.open_process(typed, stdin=DEVNULL, stdout=printed, start_new_session=True)
        try:
            async for line in _follow(process):
                heard.append(line)
                await report(next(numbers), message=line)
            code = await process.wait()
        finally:
            await _end(process)
        printed.seek(0)
        if code:
            raise ShootoutError(tell_ending(code, heard))
        return printed.read().decode(errors="replace").splitlines()[-1]  # a library may have printed before


async def _follow(process: Process) -> AsyncIterator[str]:
    """Yield each line of standard error as soon as it is whole."""
    assert process.stderr is not None
    begun = ""
    async for chunk in TextReceiveStream(process.stderr, errors="replace"):
        *lines, begun = (begun + chunk).split("\n")
        for line in filter(None, map(one_line, lines)):
            yield line


async def _end(process: Process) -> None:
    """End a call that still runs, with all of its session; it gets time to leave by itself."""
    with anyio.CancelScope(shield=True):
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with anyio.move_on_after(GRACE_S):
                    await process.wait()


def tell_ending(code: int, heard: Sequence[str]) -> str:
    """Return why a call has no result: its own sentence, or else how its process ended."""
    if code < 0:
        return f"the command was {ending(code)}; what it measured is kept, and the same call goes on"
    said = [line.removeprefix(begin) for line in heard for begin in ENDS if line.startswith(begin)]
    return said[-1] if said else f"shootout itself failed: {heard[-1] if heard else ending(code)}"
