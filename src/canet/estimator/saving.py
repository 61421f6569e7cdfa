"""Write a fitted classifier to a folder and read it: JSON and safetensors, no pickle."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from canet.errors import CanetError, InputError, VersionError
from canet.estimator.base import BaseClassifier
from canet.estimator.reference import Reference
from canet.estimator.summary import model_card
from canet.models import MethodClass, all_methods, describe_method, restore
from canet.store.model_folder import REFERENCE, WEIGHTS, ModelFile, read_model, write_model
from canet.store.result import versions
from canet.util.devices import pick_device

Classifier = TypeVar("Classifier", bound=BaseClassifier)
MAX_SCALE = 1e150  # of means and standard deviations, so that their squares are finite
OTHERS = {"params", "classes", "num_features", "model", "encoding", "versions"}
LEARNED = {field.name for field in fields(ModelFile)} - OTHERS
"""Fields of `ModelFile` whose attribute of the model has the same name and an underscore."""


def save_classifier(
    model: BaseClassifier, folder: Path, keep_reference: bool, overwrite: bool
) -> None:
    """Write a fitted `NodeClassifier` to a folder, with or without its reference sample."""
    names = {"method": model.method_name, "backbone": model.backbone and model.backbone_name}
    about, weights = model.fitted_.state()
    params = model.get_params() | names | {"checkpoints": None, "callbacks": None, "verbose": 0}
    params["device"] = str(model.device)
    if isinstance(model.class_weight, dict):
        params["class_weight"] = [[_plain(k), float(v)] for k, v in model.class_weight.items()]
    if not isinstance(model.random_state, int | np.integer | None):
        params["random_state"] = None
    file = ModelFile(
        params={name: _plain(value) for name, value in params.items()},
        classes=model.classes_.tolist(),
        num_features=model.n_features_in_,
        model=about,
        encoding=model.encoding_,
        versions=versions(),
        **{name: getattr(model, f"{name}_") for name in LEARNED},
    )
    tensors = {WEIGHTS: weights}
    if keep_reference and model.reference_ is not None:
        tensors[REFERENCE] = model.reference_.tensors()
    write_model(folder, file, tensors, model_card(model, REFERENCE in tensors), overwrite)


def load_classifier(
    model_type: type[Classifier],
    folder: Path,
    device: str | torch.device | None = None,
    method: MethodClass | None = None,
) -> Classifier:
    """Read the classifier that `save_classifier` wrote; errors as in `canet.load`."""
    file, tensors = read_model(folder)
    params, about = dict(file.params), dict(file.model)
    name = params.get("method")
    if method is not None:
        if describe_method(method).name != name:
            raise InputError(
                f"'{folder}' is a model of method '{name}': pass the class of this method"
            )
        about |= {"method": method} if about.get("method") == name else {}
        params["method"] = method
    elif isinstance(name, str) and name not in all_methods():
        raise VersionError(
            f"'{folder}' is a model of method '{name}', which is not known here: pass its class, "
            "canet.load(folder, method=CLASS), or install the package that adds it"
        )
    params["device"] = device or params.get("device", "auto")
    try:
        pick_device(params["device"])
    except InputError:
        if device is not None:
            raise
        params["device"] = "auto"  # this machine does not have the device of training
    try:
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        model = model_type(**params)
        model._settings()
        model._seed()
        fitted = restore(about, tensors[WEIGHTS])
        model.classes_ = np.array(file.classes)
        model.n_features_in_ = file.num_features
        model._set_encoding(file.encoding)
        sample = tensors.get(REFERENCE)
        sizes = file.num_features, len(file.classes)
        if not _is_in_range(file):
            raise CanetError("its calibration or largest class is not possible")
        model.reference_ = None if sample is None else Reference.from_tensors(sample, *sizes)
    except CanetError as error:
        raise VersionError(
            f"the model '{folder}' cannot be used ({error}): use canet "
            f"{file.versions.get('canet')}, which wrote it, or fit the model again"
        ) from error
    for name in LEARNED:
        setattr(model, f"{name}_", getattr(file, name))
    fitted.candidates = file.candidates
    model.fitted_ = fitted.to(pick_device(model.device))
    return model


def _is_in_range(file: ModelFile) -> bool:
    """Whether the numbers that predictions and a diagnosis compute with are possible."""
    one, count = file.calibration, len(file.classes)
    columns = file.encoding.columns if file.encoding else ()
    return (
        0 < one.temperature < math.inf
        and 0 <= one.threshold <= 1
        and one.positive in (None, 0, 1)
        and len(one.bias) in (0, count)
        and all(map(math.isfinite, one.bias))
        and file.data.get("largest_class", 0) in range(count)
        and all(0 < c.std < MAX_SCALE and abs(c.mean) < MAX_SCALE for c in columns)
    )


def _plain(value: object) -> Any:
    return value.item() if isinstance(value, np.generic) else value  # a scalar of numpy
