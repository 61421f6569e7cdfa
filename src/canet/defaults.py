"""The default settings of each task, method and backbone: published, or from a search.

CaNet uses the settings that its authors published. No such settings are published for the other
methods, so they use `searched.json`. `experiments/collect_searches.py` writes this file from many
searches on validation data. It also contains searches for CaNet, for a comparison on equal terms.
Settings are for the features that a search used; a control has those of the original features.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from canet.data import CENTRED_PER_GRAPH, DATASETS, WITHOUT_SPURIOUS
from canet.errors import CanetError, ChecksumError, InputError, first_line
from canet.methods.base import ModelSettings
from canet.models import MethodClass, all_methods, describe_method
from canet.settings import override
from canet.util.files import read_json
from canet.util.schema import CHECKSUM, checksum_of

ORIGINAL = "original"
SEARCHED = Path(__file__).with_name("searched.json")
BEST = "best.json"  # file in the folder of a search with the best settings


def task_settings(
    task: str, method: str, backbone: str, *, features: str = ORIGINAL
) -> ModelSettings:
    """Return the default settings for a task, method and backbone: published, or else searched.

    A method has its own defaults if no search used these features, or if the task is not in the
    catalogue.
    """
    found = None if method == "canet" else searched(task, method, backbone, features)
    return found or unsearched(task, method, backbone)


def searched(
    task: str, method: str, backbone: str, features: str = ORIGINAL
) -> ModelSettings | None:
    """Return the settings that a search on these features found; None without a search."""
    entry = _entry(task, method, backbone)
    if entry is None or entry["features"] != _without_control(features):
        return None
    return override(unsearched(task, method, backbone), entry["settings"])


def searched_instead(task: str, method: str, backbone: str, features: str) -> str | None:
    """Return the features that a search used in place of these; None if the defaults need none."""
    entry = None if method == "canet" else _entry(task, method, backbone)
    if entry is None or entry["features"] == _without_control(features):
        return None
    return str(entry["features"])


def unsearched(task: str, method: str, backbone: str) -> ModelSettings:
    """Return the published or default settings, which are the first trial of a search."""
    dataset = DATASETS.get(task)
    if method == "canet" and dataset and backbone in dataset.canet_settings:
        return override(describe_method(method).settings_type(), dataset.canet_settings[backbone])
    return shared(task, method)


def shared(task: str, method: str) -> ModelSettings:
    """Return the defaults of a method with the settings that all methods share on a task.

    CaNet's authors chose the shared settings for the task: the loss for two classes and the
    direction of the edges. All methods use them, so that they all see the same neighbours.
    """
    dataset = DATASETS.get(task)
    settings = describe_method(method).settings_type()
    known = dataset.shared_settings if dataset else {}
    return override(settings, {n: value for n, value in known.items() if hasattr(settings, n)})


def changed(method: str | MethodClass, changes: Mapping[str, Any]) -> ModelSettings:
    """Return the defaults of a method, or of `auto`, with some settings changed."""
    settings = describe_method(method).settings_type()
    for name in changes.keys() - asdict(settings).keys():
        owners = [m.name for m in all_methods().values() if name in asdict(m.settings_type())]
        if owners:
            raise InputError(
                f"method '{describe_method(method).name}' has no setting '{name}': remove it, or "
                f"choose a method that has it, such as '{owners[-1]}'"
            )
    return override(settings, changes)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the `settings` of a JSON file, such as the `best.json` of a search."""
    try:
        content = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise CanetError(
            f"cannot read settings from '{path}' ({first_line(error)}): pass a JSON file, such as "
            f"the {BEST} of a search"
        ) from error
    content = content if isinstance(content, dict) else {}
    if content.get(CHECKSUM) not in (None, checksum_of(content)):
        raise ChecksumError(
            f"checksum mismatch: '{path}' has changed since it was written; restore it, or remove "
            f"the entry {CHECKSUM} if you changed the settings"
        )
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise CanetError(
            f"'{path}' contains no settings: write them as {{\"settings\": {{NAME: VALUE, …}}}}"
        )
    return settings


def _entry(task: str, method: str, backbone: str) -> dict[str, Any] | None:
    return _searched().get("tasks", {}).get(task, {}).get(backbone, {}).get(method)


def _without_control(features: str) -> str:
    return ORIGINAL if features in (WITHOUT_SPURIOUS, CENTRED_PER_GRAPH) else features


@cache
def _searched() -> dict[str, Any]:
    return read_json(SEARCHED)
