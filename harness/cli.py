"""Declare the command line: each command parses, calls and prints. Data goes to stdout, all else to stderr.

Imports stand inside the commands, so that `--help` answers at once and analysis needs no framework.
To find option `--x`: it is a parameter of its command here, one that several commands share in commands/options.py,
or an entry of the table that `**options` names (`Unpack[RunOptions]`), in tell/study_options.py. What it does is what
its command's module in commands/ does with `options["x"]`, or with the study's field of that name.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, Unpack

import typer

from shootout.commands.options import (
    DECIDE,
    MACHINE,
    RACE,
    READ,
    Full,
    Group,
    GroupedCommand,
    GroupedCommands,
    Json,
    On,
    OnHost,
    Policy,
    To,
    declare,
)
from shootout.tell.study_options import (
    MODELS,
    POLICY_FLAGS,
    BisectOptions,
    GateOptions,
    HelpGroup,
    RunOptions,
    SensitivityOptions,
    TuneOptions,
)

STARTS = {
    "an ONNX file": "shootout run net.onnx",
    "variants of a model": "shootout run ./onnx/",
    "a text embedding": "shootout run ./all-MiniLM-L6-v2 --texts queries.txt",
    "a text classifier": "shootout run ./bert --texts t.parquet:text --labels t.parquet:label",
    "a YOLO detector": "shootout run best.onnx --data data.yaml",
    "an image classifier": "shootout run net.onnx --images val/",
    "trees or a pipeline": "shootout run forest.joblib --data table.parquet --target price",
    "models in a program": "shootout run app.py:read --parts det=d.onnx,rec=r.onnx --images pages/",
    "a torch module": "shootout run net.py:make",
}
"""The command to type, by what people have."""
TYPED = "\n".join(f"{what:21}{command}" for what, command in STARTS.items())

app = typer.Typer(
    cls=GroupedCommands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which backend, device and precision should I ship for this model, on this hardware, and how sure are we?",
    epilog=TYPED,
)

RUN_EXAMPLES = """\
shootout run model.onnx --batch 1,8 --max-time 2m
shootout run net.py:make --backends torch-compile,onnxruntime,openvino
shootout run model.onnx --backends 'onnxruntime:cpu:*' --inputs data.npz --labels labels.npz
shootout run model.onnx --scenario serve --p99 5ms
shootout run batch-sweep --dry-run"""
DECIDE_EXAMPLES = """\
shootout decide results/run --policy deploy.toml
shootout decide results/run --p99 5ms --max-drop 0.5pp
shootout decide runs/small runs/large --policy deploy.toml --json"""
SHIP_EXAMPLES = """\
shootout ship results/run -o model-1
shootout ship results/run --max-error 1% -o model-1
shootout ship results/run --policy deploy.toml --p99 5ms -o model-1
shootout ship results/run --choose-on-landing -o model-1"""
MERGE_EXAMPLES = """\
shootout merge laptop/run server/run -o results/both
shootout merge results/node-* --to all.csv"""
COMPARE_EXAMPLES = """\
shootout compare results/before results/after
shootout compare results/before results/after --history nightly/1 --history nightly/2"""
EXPLAIN_EXAMPLES = """\
shootout explain results/run
shootout explain results/run onnxruntime openvino:cpu:int8"""
GATE_EXAMPLES = """\
shootout gate model-1 --candidate openvino:cpu:int8 --max-drop 0.5pp --inputs rows.npz --labels labels.npz
shootout gate model-1 --candidate new.onnx --slower 3% --same-proof
shootout gate model-1 --candidate onnxruntime@new --python new=.venv-new/bin/python"""
BISECT_EXAMPLES = """\
shootout bisect onnxruntime 1.20..1.24 --model net.onnx
shootout bisect openvino 2025.0.. --model net.onnx --for memory --max-time 20m
shootout bisect openvino 2025.0..2026.4 --model net.onnx --backends openvino:cpu:int8 --inputs rows.npz"""
SENSITIVITY_EXAMPLES = """\
shootout sensitivity model.onnx --calibration data.npz
shootout sensitivity model.onnx --inputs data.npz --by block
shootout sensitivity model.onnx --precision bf16"""

command = partial(declare, app)
"""Adds a command with a table's options."""
RACED = "--backends --threads --batch --set --inputs --labels --truth --metric --policy --max-time --out --json"
"""The options of the first screen of what races a model."""


@command(
    RunOptions,
    RACE,
    RUN_EXAMPLES,
    first="--backends --batch --inputs --labels --truth --metric --texts --images --data --target --policy --scenario "
    "--max-time --out --json --dry-run",
)
def run(
    study: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|STUDY", help=f"Model: {MODELS}. Or a study: file.toml or a name (`shootout list studies`)."
        ),
    ] = "shootout",
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and measure nothing.", rich_help_panel=HelpGroup.STOP)
    ] = False,
    full: Full = False,
    as_json: Json = False,
    to: To = None,
    on: On = None,
    **options: Unpack[RunOptions],
) -> None:
    """Race backends on a model, or on a study of several models, and say which to ship.

    Exit codes: 0 measured, 3 nothing measured, 4 a target named in --backends failed, 6 one can't run on this machine.
    """
    from shootout.commands.run import command_of, run

    if options.get("parts"):
        from shootout.commands.parts import run_parts

        others = {"--on": on, "--to": to, "--full": full}
        raise typer.Exit(run_parts(study, options, dry_run=dry_run, as_json=as_json, others=others))
    if on:
        from shootout.commands.fleet import run_on_fleet  # with ssh and Ray, which no other run needs

        typed = command_of(sys.argv[1:])
        raise typer.Exit(
            run_on_fleet(
                study, options, address=on, dry_run=dry_run, full=full, as_json=as_json, to=to or (), command=typed
            )
        )
    raise typer.Exit(run(study, options, dry_run=dry_run, full=full, as_json=as_json, to=to or ()))


@command(
    TuneOptions,
    RACE,
    first=f"{RACED} --precision --max-drop --max-error --calibration",
    backends="Targets to tune. Default: each backend's default target.",
    batch="Batch size.",
    threads="Threads of the default setting, or `all`.",
    max_drop="Most that --precision may lose of the metric, at 95 % confidence: 0.5pp, 0.005, or 1% of FP32's.",
    policy="Limits of a deploy.toml that each setting must keep.",
    max_time_s="Stop after 90s, 2m or 1h, exports and builds included. Default: until each gain has a verdict.",
)
def tune(
    chosen: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"Model: {MODELS}.")] = None,
    *,
    as_json: Json = False,
    **options: Unpack[TuneOptions],
) -> None:
    """Find each backend's best settings by racing them, and show what they gain over its defaults."""
    from shootout.commands.selection import read_place
    from shootout.commands.tune import tune

    if chosen is not None:
        options["model"] = read_place(chosen, options.get("model"))
    raise typer.Exit(tune(options, as_json=as_json))


@command(
    POLICY_FLAGS,
    DECIDE,
    DECIDE_EXAMPLES,
    first="--policy --objective --load --price --p99 --min-metric --max-drop --max-error --memory --size --install "
    "--ready --rate --cost --group --json",
)
def decide(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders of one model, from one machine or several.")
    ],
    *,
    policy: Policy = None,
    group: Group = None,
    as_json: Json = False,
    **options: str,
) -> None:
    """Choose what to ship by your own limits and objective; measures nothing.

    Exit codes: 0 decided, 3 no candidate meets the limits, 7 not enough evidence.
    """
    from shootout.commands.read import decide

    keys = {name.replace("_", "-"): value for name, value in options.items()}
    raise typer.Exit(decide(folders, policy, keys, group=group, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=DECIDE, epilog=COMPARE_EXAMPLES)
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Run folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another run folder, of the same model and inputs.")],
    history: Annotated[
        list[Path] | None,
        typer.Option(
            help="Earlier run on the same machine; five show how much runs differ from day to day.",
            metavar="RUN",
        ),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Compare two runs, on one machine or on two: what changed, and what that shows; measures nothing."""
    from shootout.commands.read import compare

    raise typer.Exit(compare(a, b, history or (), full=full, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=DECIDE, epilog=MERGE_EXAMPLES)
def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders of the same study on several machines.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="New folder for small copies of them, for `show`, `decide` and `report`."),
    ] = None,
    full: Full = False,
    as_json: Json = False,
    to: To = None,
) -> None:
    """Merge runs of several machines: what to ship everywhere, which rankings hold or flip; measures nothing."""
    from shootout.commands.read import merge

    raise typer.Exit(merge(folders, out, full=full, as_json=as_json, to=to or ()))


@command(
    POLICY_FLAGS,
    DECIDE,
    SHIP_EXAMPLES,
    first="--out --target --choose-on-landing --policy --objective --p99 --min-metric --max-drop --max-error --memory "
    "--size --install --ready --group --on --json",
)
def ship(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to make.", metavar="DIR")],
    target: Annotated[
        str | None,
        typer.Option(
            help="Target to ship. Default: what the limits choose, or else the run's answer.",
            metavar="TARGET",
            rich_help_panel=HelpGroup.TARGETS,
        ),
    ] = None,
    choose_on_landing: Annotated[
        bool,
        typer.Option(
            "--choose-on-landing",
            help="Ship two to four targets that race where the folder lands, and load the fastest there.",
            rich_help_panel=HelpGroup.TARGETS,
        ),
    ] = False,
    policy: Policy = None,
    group: Group = None,
    on: OnHost = None,
    as_json: Json = False,
    **options: str,
) -> None:
    """Export a measured target as a folder to deploy: model, load.py, check.py, requirements.

    Exit codes: 0 written, 3 no candidate meets the limits, 7 not enough evidence.
    """
    from shootout.apps.judge.decide.policy import read_policy

    keys = {name.replace("_", "-"): value for name, value in options.items()}
    wanted = read_policy(policy, keys) if policy or keys else None
    if choose_on_landing or "contenders" in keys:
        from shootout.commands.landing import refuse_options, ship_to_choose

        refuse_options(choose_on_landing=choose_on_landing, target=target, on=on)
        raise typer.Exit(ship_to_choose(folder, out, policy=wanted, group=group, as_json=as_json))
    if on:
        from shootout.commands.fleet import ship_there

        raise typer.Exit(ship_there(on, folder, out, target=target, policy=wanted, group=group, as_json=as_json))
    from shootout.commands.ship import ship

    raise typer.Exit(ship(folder, out, target=target, policy=wanted, group=group, as_json=as_json))


@command(
    GateOptions,
    DECIDE,
    GATE_EXAMPLES,
    first="--candidate --slower --size --same-proof --policy --max-drop --min-agreement --inputs --labels "
    "--truth --metric --max-time --out --json --to",
    policy="Require the limits of this deploy.toml too.",
    max_time_s="Stop after this time, exports and builds included; what isn't known then is undecided. The gate waits "
    "as long at most for another run on this machine. Default: 8m.",
)
def gate(
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", help="Shipped folder.")],
    *,
    as_json: Json = False,
    to: To = None,
    **options: Unpack[GateOptions],
) -> None:
    """Test in CI if a candidate may replace what is shipped.

    Exit codes: 0 pass, 5 fail, 7 not enough evidence.
    """
    from shootout.commands.gate import gate

    raise typer.Exit(gate(reference, options, as_json=as_json, to=to or ()))


@app.command(cls=GroupedCommand, rich_help_panel=READ)
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or a merged one.")],
    full: Full = False,
    as_json: Json = False,
    to: To = None,
) -> None:
    """Show a run again; measures nothing."""
    from shootout.commands.read import show

    raise typer.Exit(show(folder, full=full, as_json=as_json, to=to or ()))


@app.command(cls=GroupedCommand, rich_help_panel=READ)
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="File to write: a page .html, Markdown .md, or the intervals .svg.", metavar="FILE"
        ),
    ] = Path("report.html"),
    policy: Annotated[
        Path | None,
        typer.Option(help="Begin with this policy's decision on all runs, as in `shootout decide`.", metavar="TOML"),
    ] = None,
    group: Group = None,
    as_json: Json = False,
) -> None:
    """Write runs as one page that opens anywhere, as Markdown, or as a figure; measures nothing."""
    from shootout.commands.report import report

    raise typer.Exit(report(folders, out, policy, group, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=READ, epilog=EXPLAIN_EXAMPLES)
def explain(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] B",
            help="Targets to hold side by side. Default: B errs most of the lower precisions, or was refused; A is the "
            "same backend's FP32, or what ships.",
        ),
    ] = None,
    group: Group = None,
    full: Annotated[bool, typer.Option("--full", help="Show each layer in place of each block.")] = False,
    as_json: Json = False,
) -> None:
    """Show two targets layer by layer: the first that errs beyond its precision, and where the time goes."""
    from shootout.commands.layers import explain

    raise typer.Exit(explain(folder, targets or (), group=group, full=full, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=READ)
def pack(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, merged ones, or folders with runs below them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, which ends in .tar.gz.", metavar="FILE")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Pack the samples, too, which percentiles need: five times the size.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack runs into one archive, to keep or to send, which shows the same once it is unpacked; the runs stay."""
    from shootout.apps.judge.compare.merged import write_archive
    from shootout.commands.output import print_written
    from shootout.core.units import size

    runs = write_archive(folders, out, raw=raw)
    size_bytes = out.stat().st_size
    sys.stderr.write(f"{out}: {size(size_bytes)}; open it with: tar -xf {out}\n")
    written = {"file": str(out), "size_bytes": size_bytes, "runs": runs}
    raise typer.Exit(print_written(written, as_json=as_json))


@command(
    BisectOptions,
    RACE,
    BISECT_EXAMPLES,
    first="--model --for --limit --backends --threads --inputs --python --max-time --out --fresh --json",
    backends="Target that runs the model: openvino:cpu:int8. Default: the package's own, in FP32.",
    max_time_s="Stop after 90s, 10m or 1h, with the range so far. Default: until the release has a verdict.",
)
def bisect(
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="Package of a runtime, as pip installs it.")],
    releases: Annotated[
        str,
        typer.Argument(
            metavar="RELEASES", help="1.20..1.24 (to the last 1.24.x), 1.20.. (to the newest), or 1.20.1,1.22.0,1.23.2."
        ),
    ],
    *,
    as_json: Json = False,
    **options: Unpack[BisectOptions],
) -> None:
    """Find the release of a runtime since which a model is slower, starts slower, takes more memory or is wrong.

    Exit codes: 0 named, or no difference; 3 nothing measured, 7 not enough evidence.
    """
    from shootout.commands.bisect import bisect

    raise typer.Exit(bisect(package, releases, options, as_json=as_json))


@command(
    SensitivityOptions,
    RACE,
    SENSITIVITY_EXAMPLES,
    first="--precision --by --set --batch --inputs --calibration --max-time --json",
    batch="Batch size.",
    max_time_s="Stop after 90s, 2m or 1h, the export included, with the figures so far. Default: measure all.",
)
def sensitivity(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"Model: {MODELS}.")],
    *,
    as_json: Json = False,
    **options: Unpack[SensitivityOptions],
) -> None:
    """Measure what a precision does to a model, layer by layer: the error with that layer alone rounded."""
    from shootout.commands.layers import sensitivity

    raise typer.Exit(sensitivity(model, options, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=MACHINE)
def doctor(on: OnHost = None, as_json: Json = False) -> None:
    """Show what works here, what is missing and how to get it, and how quiet this machine is."""
    if on:
        from shootout.commands.fleet import doctor_there

        raise typer.Exit(doctor_there(on, as_json=as_json))
    from shootout.commands.doctor import doctor

    raise typer.Exit(doctor(as_json=as_json))


@app.command("list", cls=GroupedCommand, rich_help_panel=MACHINE)
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="One of studies, models, scenarios, backends, modes, schemes, options, metrics. Default: all.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the studies, models, scenarios and backends, with their modes, schemes and options."""
    from shootout.commands.catalog import catalog

    raise typer.Exit(catalog(kind, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=MACHINE)
def ceilings(
    threads: Annotated[
        str | None,
        typer.Option(help="Threads, or `all`. Default: CPUs - 1.", metavar="N", rich_help_panel=HelpGroup.TARGETS),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again.")] = False,
    as_json: Json = False,
) -> None:
    """Show this machine's peak rate by precision and bandwidth by memory level; measured once, in a minute or more."""
    from shootout.commands.doctor import ceilings

    raise typer.Exit(ceilings(threads=threads, fresh=fresh, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=MACHINE)
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Clear it; facts about this machine stay.")] = False,
    as_json: Json = False,
) -> None:
    """Show or clear the cache of exported models and builds."""
    from shootout.commands.catalog import cache

    raise typer.Exit(cache(clear=clear, as_json=as_json))


@app.command(cls=GroupedCommand, rich_help_panel=MACHINE)
def mcp() -> None:
    """Serve plan, run, show, decide, explain, ship, gate and verify to agents, by MCP on stdin and stdout."""
    from shootout.commands.mcp import serve

    serve(app)


@app.command(cls=GroupedCommand, rich_help_panel=MACHINE)
def selftest(
    quick: Annotated[
        bool, typer.Option("--quick", help="Run five restarts only, and store nothing.", rich_help_panel=HelpGroup.STOP)
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="Device to test: cpu (default), or cuda for the same differences on the GPU.",
            metavar="DEVICE",
            rich_help_panel=HelpGroup.TARGETS,
        ),
    ] = "cpu",
    as_json: Json = False,
) -> None:
    """Test the harness on this machine: known times, a target against itself, planted differences."""
    from shootout.commands.selftest import selftest

    raise typer.Exit(selftest(quick=quick, device=device, as_json=as_json))


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read the options that stand before a command; without a command, show what to type."""
    if version:
        import shootout

        sys.stdout.write(f"shootout {shootout.__version__}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(f"{TYPED}\n\nWhat works here: shootout doctor. All commands: shootout --help\n")


def _raise_interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def tell_system_error(error: OSError) -> str:
    """Return what the system refused where no other words were found; of a copy on a full disk, name its target."""
    from shootout.core.errors import DISK_FULL, tell_refusal

    path = error.filename2 if error.errno in DISK_FULL and error.filename2 else error.filename
    if error.errno in DISK_FULL and not path:
        return f"{error.strerror}; make room for the output, the cache and temporary files"
    return f"{path!r}: {tell_refusal(error)}" if path else tell_refusal(error)


def main(app: typer.Typer = app) -> None:
    """Run the `shootout` command: errors become one clear line on stderr and the right exit code."""
    from shootout.commands.streams import standard_streams, tell
    from shootout.core.errors import ExitCode, ShootoutError, SkippedArm

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _raise_interrupt)
    try:
        with standard_streams():
            app(prog_name="shootout")
    except ShootoutError as error:
        fix = error.fix if isinstance(error, SkippedArm) else ""
        tell("; ".join(filter(None, [str(error), fix])))
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        tell("interrupted")
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except UnicodeEncodeError as error:
        if "UTF8" in error.encoding.upper().replace("-", ""):  # then the name itself is at fault, not the locale
            tell(f"{error.object!a} holds bytes that aren't UTF-8: rename the file or folder")
        else:
            tell(f"{error.object!a} can't be written in this locale's encoding, {error.encoding}: set PYTHONUTF8=1")
        raise SystemExit(ExitCode.USAGE) from None
    except OSError as error:
        tell(f"{tell_system_error(error)}; what was measured is kept")
        raise SystemExit(ExitCode.ERROR) from None


if __name__ == "__main__":  # on a host where no program of ours is installed
    main()
