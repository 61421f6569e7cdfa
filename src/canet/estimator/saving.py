"""Write a fitted classifier to a folder and read it: JSON and safetensors, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from canet.errors import CanetError, InputError, VersionError
from canet.estimator.card import model_card
from canet.estimator.reference import Reference
from canet.models import get_backbone_name, restore
from canet.store.model_folder import ModelFile, read_model, write_model
from canet.training.trainer import versions
from canet.util.devices import pick_device

if TYPE_CHECKING:
    from canet.data.graph_files.encoding import Encoding

Classifier = TypeVar("Classifier", bound=Any)
LEARNED = (
    "settings",
    "candidates",
    "scores",
    "history",
    "selected_epoch",
    "environments_seen",
    "findings",
    "data",
    "diagnosis",
    "calibration",
)
"""Fields of `ModelFile` whose attribute of the model has the same name and an underscore."""


def save_classifier(model: Any, folder: Path, keep_reference: bool) -> None:
    """Write a fitted `NodeClassifier` to a folder, with or without its reference sample."""
    names = {"method": model.method_name, "backbone": model.backbone and model.backbone_name}
    about, weights = model.fitted_.state()
    params = model.get_params() | names | {"checkpoints": None, "callbacks": None}
    params["device"] = str(model.device)
    if isinstance(model.class_weight, dict):
        params["class_weight"] = [[_plain(k), v] for k, v in model.class_weight.items()]
    if not isinstance(model.random_state, int | np.integer | None):
        params["random_state"] = None
    file = ModelFile(
        params={name: _plain(value) for name, value in params.items()},
        classes=model.classes_.tolist(),
        num_features=model.n_features_in_,
        model=about,
        encoding=None if model.encoding_ is None else model.encoding_.to_json(),
        versions=versions(),
        **{name: getattr(model, f"{name}_") for name in LEARNED},
    )
    tensors = {"weights": weights}
    if keep_reference and model.reference_ is not None:
        tensors["reference"] = model.reference_.tensors()
    write_model(folder, file, tensors, model_card(model, "reference" in tensors))


def load_classifier(
    model_type: type[Classifier], folder: Path, device: str | torch.device | None = None
) -> Classifier:
    """Read the classifier that `save_classifier` wrote; errors as in `canet.load`."""
    file, tensors = read_model(folder)
    params = dict(file.params)
    if isinstance(params["class_weight"], list):
        params["class_weight"] = dict(params["class_weight"])
    params["device"] = device or (params["device"] if _exists(params["device"]) else "auto")
    try:
        model = model_type(**params)
        get_backbone_name(model.method, model.backbone)
        fitted = restore(file.model, tensors["weights"])
    except CanetError as error:
        raise VersionError(
            f"'{folder}' was saved by canet {file.versions['canet']}, and this version cannot read "
            f"it ({error}): update canet, install or import the package that adds the method, or "
            "fit the model again"
        ) from error
    model.classes_ = np.array(file.classes)
    model.n_features_in_ = file.num_features
    for name in LEARNED:
        setattr(model, f"{name}_", getattr(file, name))
    model._set_encoding(None if file.encoding is None else _read_encoding(file.encoding))
    sample = tensors.get("reference")
    model.reference_ = None if sample is None else Reference.from_tensors(sample)
    fitted.candidates = file.candidates
    model.fitted_ = fitted.to(pick_device(model.device))
    return model


def _exists(device: str) -> bool:
    """Whether this machine has the device."""
    try:
        pick_device(device)
    except InputError:
        return False
    return True


def _read_encoding(content: dict[str, Any]) -> Encoding:
    from canet.data.graph_files.encoding import Encoding  # needs pyarrow

    return Encoding.from_json(content)


def _plain(value: object) -> Any:
    """Return a scalar of numpy as a Python object."""
    return value.item() if isinstance(value, np.generic) else value
