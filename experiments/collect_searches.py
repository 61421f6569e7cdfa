"""Collect searches into `searched.json`, the default settings of the compared methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet.defaults import BEST, read_settings, unsearched
from canet.errors import CanetError
from canet.util.files import read_json

NEEDED = ("task", "backbone", "method", "settings", "command", "date", "hardware")
KEPT = ("valid", "trials", "epochs", "features")


def collect(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the content of `searched.json` from the searches at or below some folders.

    An entry has the settings that differ from those without a search, the best validation score
    between 0 and 1, and the number of trials and epochs.
    """
    found = sorted({path for folder in folders for path in folder.rglob(BEST)})
    searches = [_read_search(path) for path in found]
    if not searches:
        raise CanetError("no finished search in these folders: pass the folders of searches")
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for search in sorted(searches, key=lambda s: (s["task"], s["backbone"], s["method"])):
        task, backbone, method = search["task"], search["backbone"], search["method"]
        methods = tasks.setdefault(task, {}).setdefault(backbone, {})
        if method in methods:
            raise CanetError(f"two searches of {method}-{backbone} on {task}: pass only one")
        before = asdict(unsearched(task, method, backbone))
        methods[method] = {
            "settings": {k: v for k, v in search["settings"].items() if v != before[k]},
            **{key: search[key] for key in KEPT},
        }
    return {
        "commands": sorted({_template(search) for search in searches}),
        "date": max(search["date"] for search in searches),
        "hardware": ", ".join(sorted({search["hardware"] for search in searches})),
        "tasks": tasks,
    }


def _read_search(path: Path) -> dict[str, Any]:
    """Read the result of a search; an error if the file has another content."""
    try:
        read_settings(path)  # an error if the file has changed
        search = read_json(path)
        return {name: search[name] for name in NEEDED + KEPT}
    except (ValueError, TypeError, LookupError) as error:
        raise CanetError(f"'{path}' is not the result of a search ({error})") from error


def _template(search: dict[str, Any]) -> str:
    """The command of a search, with placeholders for task, method and backbone."""
    begin = "canet search {task} --method {method} --backbone {backbone}"
    rest = search["command"].removeprefix(begin.format(**search))
    return begin.format(task="TASK", method="METHOD", backbone="BACKBONE") + str(rest)
