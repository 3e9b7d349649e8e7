"""The commands that make something of runs: a decision, one run of many machines, a folder to deploy, a gate.

Imports stand inside the commands, as in `shootout.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Unpack

import typer

from shootout.commands.declared import DECIDE, Full, Json, To, declare
from shootout.commands.help import GroupedCommand
from shootout.decide.options import PolicyOptions
from shootout.gate.options import GateOptions
from shootout.study.options import Group

DECIDE_EXAMPLES = """\
shootout decide results/run --policy deploy.toml
shootout decide results/run --p99 5ms --max-accuracy-drop 0.5pp
shootout decide runs/small runs/large --policy deploy.toml --json"""
MERGE_EXAMPLES = """\
shootout merge laptop/run server/run -o results/both
shootout merge results/node-* --to all.csv"""
COMPARE_EXAMPLES = """\
shootout compare results/before results/after
shootout compare results/before results/after --history nightly/1 --history nightly/2"""
GATE_EXAMPLES = """\
shootout gate model-1 --candidate openvino:cpu:int8 --accuracy-drop 0.5pp
shootout gate model-1 --candidate new.onnx --slower 3% --same-proof
shootout gate results/run --candidate onnxruntime@new --python new=.venv-new/bin/python"""


def declare_decisions(app: typer.Typer) -> None:
    """Add them to the command line."""

    @declare(app, PolicyOptions, DECIDE, DECIDE_EXAMPLES)
    def decide(
        folders: Annotated[
            list[Path],
            typer.Argument(metavar="RUN", help="A run folder; or several, of one model, on one machine or on many."),
        ],
        *,
        policy: Annotated[
            Path | None,
            typer.Option(
                help="The policy, which holds all that options can say. Default: none.",
                metavar="TOML",
                rich_help_panel=Group.WHAT,
            ),
        ] = None,
        group: Annotated[
            str | None,
            typer.Option(
                help="The cell to decide on, where there are several.", metavar="NAME", rich_help_panel=Group.WHAT
            ),
        ] = None,
        as_json: Json = False,
        **options: Unpack[PolicyOptions],
    ) -> None:
        """What to ship by your own limits, prices and objective; measures nothing.

        Exit 3: nothing may be, 7: not known.
        """
        from shootout.commands.decisions.decide import decide

        keys = {name.replace("_", "-"): value for name, value in options.items()}
        raise typer.Exit(decide(folders, policy, keys, group=group, as_json=as_json))

    @app.command(cls=GroupedCommand, rich_help_panel=DECIDE, epilog=COMPARE_EXAMPLES)
    def compare(
        a: Annotated[Path, typer.Argument(metavar="A", help="A run folder.")],
        b: Annotated[Path, typer.Argument(metavar="B", help="Another one, of the same model and inputs.")],
        history: Annotated[
            list[Path] | None,
            typer.Option(help="An earlier run on the same machine; 5 tell how far sessions differ.", metavar="RUN"),
        ] = None,
        full: Full = False,
        as_json: Json = False,
    ) -> None:
        """Two runs: what changed, and what may be said of it, on one machine or on two; measures nothing."""
        from shootout.commands.decisions.compare import compare

        raise typer.Exit(compare(a, b, history or (), full=full, as_json=as_json))

    @app.command(cls=GroupedCommand, rich_help_panel=DECIDE, epilog=MERGE_EXAMPLES)
    def merge(
        folders: Annotated[
            list[Path], typer.Argument(metavar="RUN", help="Run folders of the same study on several machines.")
        ],
        out: Annotated[
            Path | None,
            typer.Option(
                "--out",
                "-o",
                help="A new folder for small copies of them; `show`, `decide` and `report` take it.",
            ),
        ] = None,
        full: Full = False,
        as_json: Json = False,
        to: To = None,
    ) -> None:
        """Runs of several machines as one: what to ship everywhere, which rankings hold or flip; measures nothing."""
        from shootout.commands.decisions.merge import merge

        raise typer.Exit(merge(folders, out, full=full, as_json=as_json, to=to or ()))

    @app.command(cls=GroupedCommand, rich_help_panel=DECIDE)
    def ship(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
        out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make.", metavar="DIR")],
        arm: Annotated[
            str | None, typer.Option(help="The arm. Default: what the run's answer ships.", metavar="ARM")
        ] = None,
        policy: Annotated[
            Path | None, typer.Option(help="A policy, as for `decide`: what it chooses.", metavar="TOML")
        ] = None,
        group: Annotated[str | None, typer.Option(help="The cell, where there are several.", metavar="NAME")] = None,
        layout: Annotated[
            str,
            typer.Option("--format", help="Its form: folder (default), triton, ovms or mlflow.", metavar="FORM"),
        ] = "folder",
    ) -> None:
        """An arm as a folder to mount, with the programs that load and check it.

        Exit 3: nothing may be, 7: not known.
        """
        from shootout.commands.decisions.ship import ship

        raise typer.Exit(ship(folder, out, arm=arm, policy=policy, group=group, layout=layout))

    @declare(app, GateOptions, DECIDE, GATE_EXAMPLES)
    def gate(
        reference: Annotated[
            Path,
            typer.Argument(metavar="SHARED_OUTPUTS", help="A shipped folder, or a run's, whose arm is made again."),
        ],
        *,
        as_json: Json = False,
        to: To = None,
        **options: Unpack[GateOptions],
    ) -> None:
        """For CI: may a candidate take the place of what is shipped? Exit 0: yes, 5: no, 7: not known in time."""
        from shootout.commands.decisions.gate import gate

        raise typer.Exit(gate(reference, options, as_json=as_json, to=to or ()))
