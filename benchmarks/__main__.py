"""`python -m benchmarks`: measure speed and memory."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import run_bench
from benchmarks.scale import measure_in_process as measure_scale
from benchmarks.scale_report import draw_default, draw_scale, scale_table
from benchmarks.user_graph import GRAPHS, STAGES, measure_in_process
from canet.cli.main import main
from canet.cli.options import DataRoot, Device, Quiet, names
from canet.data import file_status
from canet.errors import CanetError, check_name
from canet.util.devices import pick_device
from canet.util.files import write_json

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Measure all tasks and growth, or a few cases in a few minutes."
        ),
    ] = False,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, such as cora,arxiv.")] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Measure only how the cost grows with graph and model.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, max=3600, help="Approximate time for each implementation."),
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the measurements; pictures are written next to it.")
    ] = Path("bench.json"),
    quiet: Quiet = False,
) -> None:
    """Speed and memory of CaNet and ERM compared with a plain implementation of the equations."""
    if context.invoked_subcommand:
        sources = map(context.get_parameter_source, context.params)
        if any(source and source.name == "COMMANDLINE" for source in sources):
            raise CanetError(f"put the options of {context.invoked_subcommand} after its name")
        return
    if growth and (full or tasks):
        raise CanetError("--growth cannot be combined with --full or --tasks: omit them")
    what = "--growth" if growth else "--full" if full else "--quick"
    command = ["python", "-m", "benchmarks", what, "--device", device]
    command += ["--tasks", tasks] if tasks else []
    command += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    run_bench(
        out,
        shlex.join(command),
        full,
        names(tasks),
        growth,
        device,
        seconds,
        data_root,
        quiet,
    )


@app.command("user_graph")
def user_graph(
    graphs: Annotated[
        str | None, typer.Option(help="Only these graphs, such as 'cora,table 10⁵'.")
    ] = None,
    device: Device = "cpu",
    diagnosis: Annotated[bool, typer.Option(help="Also time a diagnosis.")] = True,
) -> None:
    """Measure the time of each step of a user of NodeClassifier, and the peak memory."""
    chosen = names(graphs) or GRAPHS
    for name in chosen:
        check_name("graph", name, GRAPHS)
    print("| seconds | " + " | ".join(STAGES) + " |\n|---|" + "--:|" * len(STAGES))
    for name in chosen:
        if name == "cora" and any(file.state != "present" for file in file_status("cora")):
            print("| cora | skipped: its files are not in CANET_DATA_ROOT |")
            continue
        found = measure_in_process(name, device, diagnosis)
        cells = [f"{found[stage]:.2f}" if stage in found else "–" for stage in STAGES]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


@app.command("scale")
def scale(
    sizes: Annotated[
        str, typer.Option(help="Numbers of nodes of the graphs on the CPU, such as 1e5,1e6.")
    ] = "1e5,1e6,1e7",
    default_sizes: Annotated[
        str, typer.Option(help="Numbers of nodes on which the default is measured.")
    ] = "1e3,1e4,1e5,1e6,1e7",
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds of the default.")] = 120,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the graphs, which take up to 6 GB.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the measurements; a picture is next to it.")
    ] = Path("bench-scale.json"),
) -> None:
    """Speed and memory on R-MAT graphs of growing size: convert, train in batches and predict.

    On a GPU, the graph has the size of ogbn-papers100M. The default, NodeClassifier(), is measured
    on its own sizes; files with `-default` in their names have its table and picture.
    """
    place = str(folder or tempfile.gettempdir())
    of_default = [int(float(size)) for size in names(default_sizes) or ()]
    how = threads, place, time_limit, device
    default = {count: measure_scale("default", count, *how) for count in of_default}
    if default:
        of_its_own = out.with_stem(f"{out.stem}-default")
        draw_default(list(default.values()), of_its_own)
        write_json(of_its_own, list(default.values()))
        print(scale_table(list(default.values())))
    if pick_device(device).type == "cuda":
        cases = [[m, p, 1.0] for p in ("high", "highest") for m in ("erm", "canet")]
        cases += [["erm", "high", kept] for kept in (0.25, 0.05)]
        found = [measure_scale("cuda", *case) for case in cases]
    else:
        counts = [int(float(size)) for size in names(sizes) or ()]
        found = [
            measure_scale("cpu", count, threads, place) | default.get(count, {}) for count in counts
        ]
        if not found:
            return
        draw_scale(found, out)
    write_json(out, found)
    print(scale_table(found))


if __name__ == "__main__":
    main(app, "benchmarks")
