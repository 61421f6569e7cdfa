"""Figures and failed jobs that the report shows besides the runs."""

from __future__ import annotations

import base64
from pathlib import Path

from canet.errors import warn_user
from canet.runs.run import read_failure
from canet.store import RunFolder
from canet.store.run_folder import CONFIG, folders_below
from canet.util.files import read_regular

TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
MAX_BYTES = 2**25  # per picture


def figures(folder: Path) -> list[tuple[str, str]]:
    """Title and data URI of each picture of a folder, sorted by name; SVG is preferred over PNG.

    `ablation-bars-cora.svg` has the title `Ablation: bars cora`. Links to files outside the folder
    are left out with a warning.
    """
    paths = {path.stem: path for suffix in TYPES for path in folder.glob(f"*{suffix}")}
    inside = folder.parent.resolve() / folder.name
    found = []
    for name, path in sorted(paths.items()):
        if path.resolve().parent != inside:
            warn_user(f"left out '{path}': the picture is not in this folder")
            continue
        title = name.replace("_", "-").replace("-", ": ", 1).replace("-", " ")
        content = base64.b64encode(read_regular(path, MAX_BYTES)).decode()
        uri = f"data:{TYPES[path.suffix]};base64,{content}"
        found.append((title[0].upper() + title[1:], uri))
    return found


def failures(out: Path) -> list[tuple[str, list[str]]]:
    """Name and last lines of each failed job at or below `out` that no later attempt finished."""
    found = []
    for folder in folders_below(out):
        run = RunFolder(folder)
        if not run.finished and (lines := read_failure(run)):
            name = folder.relative_to(out).as_posix()
            if (folder / CONFIG).exists():
                config = run.read_config()
                job = f"{config.task} {config.method}-{config.backbone}, seed {config.seed}"
                name = f"{job} ({name})"
            found.append((name, lines))
    return found
