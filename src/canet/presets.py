"""The settings that each task, method and backbone start from: published, or found by search.

CaNet starts from what its authors published, which is part of a data set. Its competitors start
from `searched.json`, which `collect` makes of many searches on validation data. Searches of CaNet
are there too, for comparisons on equal terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from canet.data import DATASETS
from canet.errors import CanetError
from canet.methods import Settings, get_method
from canet.settings import override
from canet.util.files import read_json

SEARCHED = Path(__file__).with_name("searched.json")
BEST = "best.json"  # what a search leaves in its folder


def preset(task: str, method: str, backbone: str) -> Settings:
    """The settings that a task, method and backbone start from: published, or else searched."""
    found = None if method == "canet" else searched(task, method, backbone)
    return found or unsearched(task, method, backbone)


def searched(task: str, method: str, backbone: str) -> Settings | None:
    """The settings that a search on validation data found, None where there was no search."""
    entry = _searched().get("tasks", {}).get(task, {}).get(backbone, {}).get(method)
    if entry is None:
        return None
    return override(unsearched(task, method, backbone), entry["settings"])


def unsearched(task: str, method: str, backbone: str) -> Settings:
    """The settings without any search, published or default: where a search itself starts."""
    dataset = DATASETS.get(task)
    if method == "canet" and dataset and backbone in dataset.canet_settings:
        return override(_default(method), dataset.canet_settings[backbone])
    return shared(task, method)


def shared(task: str, method: str) -> Settings:
    """The defaults, and what all methods share on a task, whatever their backbone.

    These are the loss for two classes and the direction in which edges are read, as CaNet's authors
    chose them for the task, so that all methods see the same neighbours.
    """
    dataset = DATASETS.get(task)
    return override(_default(method), dataset.shared_settings if dataset else {})


def _default(method: str) -> Settings:
    return get_method(method).settings_type()


def read_settings(path: Path) -> dict[str, Any]:
    """The `settings` in a JSON file, such as the `best.json` of a search."""
    try:
        content = read_json(path)
    except OSError as error:
        raise CanetError(
            f"cannot read settings from '{path}' ({error.strerror}): name a file such as the "
            f"{BEST} of a search"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CanetError(f"'{path}' is not JSON: settings are read from JSON") from error
    settings = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(settings, dict):
        raise CanetError(f"'{path}' has no settings: it needs {{\"settings\": {{NAME: VALUE, …}}}}")
    return settings


def collect(folders: Iterable[Path]) -> dict[str, Any]:
    """The content of `searched.json` from the searches at or below some folders, in any order.

    An entry holds what differs from the settings without search, CaNet's published ones or what a
    task's competitors share, the best validation score, and how many trials of how many epochs it
    took.
    """
    found = sorted({path for folder in folders for path in folder.rglob(BEST)})
    searches = [_read_search(path) for path in found]
    if not searches:
        raise CanetError("no finished search there: give the folders of searches")
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for search in sorted(searches, key=lambda s: (s["task"], s["backbone"], s["method"])):
        task, backbone, method = search["task"], search["backbone"], search["method"]
        methods = tasks.setdefault(task, {}).setdefault(backbone, {})
        if method in methods:
            raise CanetError(f"two searches of {method}-{backbone} on {task}: give only one")
        before = asdict(unsearched(task, method, backbone))
        methods[method] = {
            "settings": {k: v for k, v in search["settings"].items() if v != before[k]},
            **{key: search[key] for key in ("valid", "trials", "epochs", "features")},
        }
    return {
        "commands": sorted({_template(search) for search in searches}),
        "date": max(search["date"] for search in searches),
        "hardware": ", ".join(sorted({search["hardware"] for search in searches})),
        "tasks": tasks,
    }


def _read_search(path: Path) -> dict[str, Any]:
    """What a search left in its folder, or an error where that is something else."""
    texts = ("task", "backbone", "method", "command", "date", "hardware")
    try:
        search = read_json(path)
        sound = all(isinstance(search[name], str) for name in texts)
        sound = sound and {"valid", "trials", "epochs", "features"} <= search.keys()
        if sound and isinstance(search["settings"], dict):
            return dict(search)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise CanetError(f"'{path}' is damaged: the same search again writes it anew")


def _template(search: dict[str, Any]) -> str:
    """The command of a search, with its task, method and backbone left open."""
    special = f"canet search {search['task']} --method {search['method']}"
    special += f" --backbone {search['backbone']}"
    rest = str(search["command"]).removeprefix(special)
    return f"canet search TASK --method METHOD --backbone BACKBONE{rest}"


@cache
def _searched() -> dict[str, Any]:
    content: dict[str, Any] = read_json(SEARCHED)
    return content
