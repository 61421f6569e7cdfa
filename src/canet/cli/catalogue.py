"""Lists: `canet datasets`, `methods` and `backbones`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from canet.cli.app import app
from canet.cli.options import DataRoot, Json


@app.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(help="Show one task with its splits and files.")
    ] = None,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """List the benchmark tasks, their sizes and their files."""
    from canet.cli.listings import as_content, show_task, show_tasks
    from canet.data import DATASETS, describe

    descriptions = [describe(task, data_root) for task in ([name] if name else DATASETS)]
    if as_json:
        content = {d.name: as_content(d) for d in descriptions}
        print(json.dumps(content[name] if name else content, indent=2))
    elif name:
        show_task(descriptions[0])
    else:
        show_tasks(descriptions)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one method with all its settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods with their settings and papers."""
    from canet.cli.listings import show_method, show_methods
    from canet.models import all_methods, describe_method
    from canet.settings import describe_settings

    chosen = [describe_method(name)] if name else list(all_methods().values())
    if as_json:
        content = {
            method.name: {
                "summary": method.summary,
                "paper": method.paper,
                "needs_environments": method.needs_environments,
                "settings": describe_settings(method.settings_type),
            }
            for method in chosen
        }
        print(json.dumps(content, indent=2))
    elif name:
        show_method(chosen[0])
    else:
        show_methods(chosen)


@app.command()
def backbones(as_json: Json = False) -> None:
    """List the backbones, the graph layers that every method can use."""
    from canet.methods import BACKBONES

    if as_json:
        content = {b.name: {"label": b.label, "summary": b.summary} for b in BACKBONES.values()}
        print(json.dumps(content, indent=2))
        return
    width = max(map(len, BACKBONES))
    for backbone in BACKBONES.values():
        print(f"{backbone.name:<{width}}  {backbone.summary}")
