"""The command line, thin: parse, call, print. Data on stdout, everything for people's eyes on stderr.

Imports stand inside the commands, so that `--help` answers at once and analysis needs no framework.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which backend, device and precision should I ship for this model, on this hardware, and how sure are we?",
)

Model = Annotated[
    str | None,
    typer.Option(
        help="A model's name, or your own: file.onnx, config.json of transformers, file.py:function or "
        "package.module:function (these two run your code)."
    ),
]
Inputs = Annotated[str | None, typer.Option(help="Your own inputs for a model of your own: data.npz.")]
Labels = Annotated[str | None, typer.Option(help="The right class of each row of --inputs, for accuracy: labels.npz.")]
Calibration = Annotated[str | None, typer.Option(help="Your own input sets for quantization: data.npz.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An axis: a model's parameter or an ONNX file's symbolic size, batch, threads, scenario, backend, device, "
        "precision. key=v1,v2 or key='1..64 x2' or key='128..512 +128'.",
    ),
]
Pythons = Annotated[
    list[str] | None, typer.Option(help="Another interpreter to race ours: name=path; targets name it as backend@name.")
]
Rate = Annotated[str | None, typer.Option(help="Serving: requests a second, e.g. 200/s. Default: find the highest.")]
P99 = Annotated[str | None, typer.Option(help="Serving: the limit on p99, e.g. 5ms. Default: 5 x an idle call.")]
Instances = Annotated[str | None, typer.Option(help="Throughput, serving: sessions at work at once, e.g. 1,2.")]
Gpu = Annotated[
    int | None,
    typer.Option(
        "--gpu",
        help="Which GPU: its number in nvidia-smi, or among those of CUDA_VISIBLE_DEVICES. Default: the first.",
    ),
]
MaxTime = Annotated[str | None, typer.Option(help="Stop after this long, e.g. 90s, 2m, 1h.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study's name (see `list`) or a TOML file.")] = "shootout",
    model: Model = None,
    sets: Sets = None,
    backends: Annotated[str | None, typer.Option(help="Targets, e.g. numpy,onnxruntime:cpu:fp32; twice = A/A.")] = None,
    scenario: Annotated[str | None, typer.Option(help="latency (default), throughput, train-step or serve.")] = None,
    batch: Annotated[str | None, typer.Option(help="Batch sizes, e.g. 1,8 or '1..64 x2'.")] = None,
    threads: Annotated[str | None, typer.Option(help="Threads per arm, e.g. 1,2 or `all`. Default: CPUs - 1.")] = None,
    inputs: Inputs = None,
    labels: Labels = None,
    calibration: Calibration = None,
    baseline: Annotated[str | None, typer.Option(help="The arm that ratios refer to.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="A backend's own knob: backend.KEY=value.")] = None,
    python: Pythons = None,
    rate: Rate = None,
    p99: P99 = None,
    instances: Instances = None,
    energy: Annotated[bool, typer.Option("--energy", help="Also measure a call's energy on a GPU.")] = False,
    l2: Annotated[str | None, typer.Option("--l2", help="warm (default), or cold: empty a GPU's L2 before.")] = None,
    gpu: Gpu = None,
    max_time: MaxTime = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: results/<study>/<time>.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and measure nothing.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Also write a Chrome/Perfetto trace of each arm.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A failed row is an error, whoever named it.")] = False,
    as_json: Json = False,
) -> None:
    """Race the study's backends and say which to ship."""
    from shootout.commands import commands

    asked = commands.Asked(
        study=study,
        model=model,
        sets=tuple(sets or ()),
        backends=backends,
        scenario=scenario,
        batch=batch,
        threads=threads,
        inputs=inputs,
        labels=labels,
        calibration=calibration,
        baseline=baseline,
        options=tuple(option or ()),
        pythons=tuple(python or ()),
        rate=rate,
        p99=p99,
        instances=instances,
        energy=energy,
        l2=l2,
        gpu=gpu,
        max_time=max_time,
        out=out,
        fresh=fresh,
        dry_run=dry_run,
        trace=trace,
        strict=strict,
    )
    raise typer.Exit(commands.run(asked, as_json=as_json))


@app.command()
def tune(
    model: Annotated[str | None, typer.Option(help="As in `run`.")] = None,
    sets: Sets = None,
    backends: Annotated[str | None, typer.Option(help="Targets to tune. Default: every backend as it comes.")] = None,
    batch: Annotated[str | None, typer.Option(help="Batch size.")] = None,
    threads: Annotated[str | None, typer.Option(help="Threads of the default setting, or `all`.")] = None,
    allow: Annotated[str | None, typer.Option(help="Precisions that may be tried too, e.g. bf16,int8.")] = None,
    inputs: Inputs = None,
    labels: Labels = None,
    calibration: Calibration = None,
    option: Annotated[list[str] | None, typer.Option(help="Part of the default setting: backend.KEY=value.")] = None,
    python: Pythons = None,
    gpu: Gpu = None,
    max_time: MaxTime = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: results/tune/<time>.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Find each backend's best own settings by racing them, and what they gain over its defaults."""
    from shootout.commands import commands

    asked = commands.Asked(
        model=model,
        sets=tuple(sets or ()),
        backends=backends,
        batch=batch,
        threads=threads,
        inputs=inputs,
        labels=labels,
        calibration=calibration,
        options=tuple(option or ()),
        pythons=tuple(python or ()),
        gpu=gpu,
        max_time=max_time,
        out=out,
        fresh=fresh,
    )
    raise typer.Exit(commands.tune(asked, allow, as_json=as_json))


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    full: Annotated[bool, typer.Option("--full", help="A table for each size of a sweep.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run again; measures nothing."""
    from shootout.commands import commands

    raise typer.Exit(commands.show(folder, full=full, as_json=as_json))


@app.command()
def pack(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, of `run` or of `tune`.")],
    into: Annotated[Path, typer.Argument(metavar="INTO", help="A new folder.")],
) -> None:
    """A small copy of a run, to keep or to ship: two files, which show the same; the run itself stays."""
    from shootout.journal.pack import pack as copy
    from shootout.units import size

    before, after = copy(folder, into)
    sys.stderr.write(f"{into}: {size(after)} instead of {size(before)}\n")


@app.command()
def sensitivity(
    model: Annotated[str, typer.Argument(help="A model's name, or your own, as for `run`.")],
    sets: Sets = None,
    batch: Annotated[int, typer.Option(help="Batch size.")] = 1,
    inputs: Inputs = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """What INT8 does to a model, layer by layer: the error with that layer alone quantized, the worst first."""
    from shootout.commands import commands

    asked = commands.Asked(
        model=model, sets=tuple(sets or ()), batch=str(batch), inputs=inputs, calibration=calibration
    )
    raise typer.Exit(commands.sensitivity(asked, as_json=as_json))


@app.command()
def doctor(gpu: Gpu = None, as_json: Json = False) -> None:
    """What works here, what is missing and how to get it, and how quiet this machine is."""
    from shootout.commands import commands

    raise typer.Exit(commands.examine(gpu=gpu, as_json=as_json))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The studies, models and backends there are."""
    from shootout.commands import commands

    raise typer.Exit(commands.catalogue(as_json=as_json))


@app.command()
def ceilings(
    threads: Annotated[str | None, typer.Option(help="Threads, or `all`. Default: CPUs - 1.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again.")] = False,
    as_json: Json = False,
) -> None:
    """This machine's peak rate by precision and bandwidth by memory level; measured once, in a minute or more."""
    from shootout.commands import commands

    raise typer.Exit(commands.ceilings(threads=threads, fresh=fresh, as_json=as_json))


@app.command()
def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="Five generations only; stores nothing.")] = False,
    device: Annotated[str, typer.Option("--device", help="cpu, or cuda: the same differences on the GPU.")] = "cpu",
    gpu: Gpu = None,
    out: Annotated[Path | None, typer.Option(help="Keep the races in this folder; go on there.")] = None,
    as_json: Json = False,
) -> None:
    """Test the harness on this machine: known times, A/A, injected differences. Stores the bias floor."""
    from shootout.commands import commands

    raise typer.Exit(commands.selftest(quick=quick, device=device, gpu=gpu, out=out, as_json=as_json))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Shared options."""
    if version:
        import shootout

        sys.stdout.write(f"shootout {shootout.__version__}\n")
        raise typer.Exit


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The `shootout` command: errors become one clear line on stderr and the right exit code."""
    from shootout.errors import ShootoutError

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except ShootoutError as error:
        sys.stderr.write(f"shootout: {error}\n")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        sys.stderr.write("shootout: interrupted\n")
        raise SystemExit(130) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"shootout: {error.strerror or error}{where}; what was measured is kept\n")
        raise SystemExit(ShootoutError.exit_code) from None
