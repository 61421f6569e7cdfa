"""The settings that each task, method and backbone start from: published, or found by search.

CaNet starts from what its authors published. For its competitors nothing is: they start from
`searched.json`, which `canet.search.collect` makes from many searches on validation data. It has
searches of CaNet too, to compare it on equal terms.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from canet.errors import CanetError
from canet.methods import Settings, get_method
from canet.settings import override
from canet.util.files import read_json

SEARCHED = Path(__file__).with_name("searched.json")
BEST = "best.json"  # what a search leaves in its folder

# What the authors published for CaNet; everything else is the settings' own default.
_SUM = {"estimator": "node", "propagation": "sum", "direction": "against"}
_BINARY = {"loss": "binary_cross_entropy"}
_CANET: dict[tuple[str, str], dict[str, Any]] = {
    ("cora", "gcn"): {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.2},
    ("citeseer", "gcn"): {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.1},
    ("pubmed", "gcn"): {"weight_decay": 5e-5, "tau": 2.0, "dropout": 0.2},
    ("arxiv", "gcn"): {"weight_decay": 5e-4, "tau": 1.0, "dropout": 0.2, **_SUM},
    ("twitch", "gcn"): {"weight_decay": 5e-5, "tau": 3.0, "dropout": 0.0, **_BINARY},
    ("elliptic", "gcn"): {
        "weight_decay": 1e-3,
        "tau": 1.0,
        "dropout": 0.2,
        "num_layers": 3,
        "hidden": 32,
        **_SUM,
        **_BINARY,
    },
    ("cora", "gat"): {"weight_decay": 0.0, "tau": 3.0, "dropout": 0.2},
    ("citeseer", "gat"): {"weight_decay": 0.0, "tau": 3.0, "dropout": 0.2},
    ("pubmed", "gat"): {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.2},
    ("arxiv", "gat"): {"weight_decay": 5e-5, "tau": 2.0, "dropout": 0.2, "direction": "against"},
    ("twitch", "gat"): {"weight_decay": 5e-5, "tau": 2.0, "dropout": 0.0, **_BINARY},
    ("elliptic", "gat"): {
        "weight_decay": 5e-4,
        "tau": 2.0,
        "dropout": 0.1,
        "direction": "against",
        **_BINARY,
    },
}

# What CaNet's authors chose for a task as such, its competitors share: the loss of two classes and
# the direction of reading, so that all see the same neighbours.
_AGAINST = {"direction": "against"}
_COMMON: dict[str, dict[str, Any]] = {
    "arxiv": _AGAINST,
    "twitch": _BINARY,
    "elliptic": {**_AGAINST, **_BINARY},
}


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
    published = _CANET.get((task, backbone)) if method == "canet" else None
    return shared(task, method) if published is None else override(_default(method), published)


def shared(task: str, method: str) -> Settings:
    """The defaults, and what a task's own nature decides: the same for every backbone."""
    return override(_default(method), _COMMON.get(task, {}))


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
        ) from None
    except (ValueError, RecursionError):
        raise CanetError(f"'{path}' is not JSON: settings stand in a file of JSON") from None
    settings = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(settings, dict):
        raise CanetError(f"'{path}' has no settings: it needs {{\"settings\": {{NAME: VALUE, …}}}}")
    return settings


@cache
def _searched() -> dict[str, Any]:
    content: dict[str, Any] = read_json(SEARCHED)
    return content
