"""Published settings: the defaults of each task, method and backbone."""

from __future__ import annotations

from typing import Any

from canet.methods import Settings, get_method
from canet.settings import override

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

# Nothing is published for the competitors; two-class tasks share their loss with CaNet.
_COMMON: dict[str, dict[str, Any]] = {"twitch": _BINARY, "elliptic": _BINARY}


def preset(task: str, method: str, backbone: str) -> Settings:
    """The settings that a task, method and backbone start from."""
    defaults = get_method(method).settings_type()
    if method == "canet":
        return override(defaults, _CANET.get((task, backbone), {}))
    return override(defaults, _COMMON.get(task, {}))
