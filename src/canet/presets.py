"""The settings that each task, method and backbone start from: published, or found by search.

CaNet starts from what its authors published. For its competitors nothing is: they start from
`searched.json`, which `experiments/collect_searches.py` makes from many searches on validation
data. It has searches of CaNet too, to compare it on equal terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from canet.data import DATASETS
from canet.errors import CanetError, InputError
from canet.methods import METHODS, Auto, Settings, describe_method
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


def changed(method: str, changes: Mapping[str, Any]) -> Settings:
    """The defaults of a method, or of `auto`, with some changed."""
    settings = _default(method)
    of_one = set(changes) - set(asdict(settings))
    if method == Auto.name and of_one:
        owners = [m.name for m in METHODS.values() if of_one <= set(asdict(m.settings_type()))]
        if owners:
            raise InputError(
                f"setting '{min(of_one)}' is of single methods, and auto tries several: name the "
                f"method too, such as '{owners[-1]}'"
            )
    return override(settings, changes)


def _default(method: str) -> Settings:
    return describe_method(method).settings_type()


def read_settings(path: Path) -> dict[str, Any]:
    """The `settings` in a JSON file, such as the `best.json` of a search."""
    try:
        content = read_json(path)
    except InputError:
        raise
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


@cache
def _searched() -> dict[str, Any]:
    content: dict[str, Any] = read_json(SEARCHED)
    return content
