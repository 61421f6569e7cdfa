"""A saved model for tests."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from canet.store.model_folder import ModelFile, write_model

FILE = ModelFile(
    params={"method": "erm", "class_weight": [["α", 0.1 + 0.2], ["b", 1]], "epochs": None},
    classes=["α", "b"],
    num_features=3,
    model={"num_environment_labels": 0},
    settings={"hidden": 8, "dropout": 0.5},
    scores={"train": 1.0, "valid": 1 / 3},
    baselines={"train": 0.5, "valid": 0.5},
    left_out=[],
    history={"loss": [1.0, float("inf")], "valid": [50.0, 200 / 3]},
    selected_epoch=1,
    environments_seen=None,
    findings=None,
    encoding=None,
    versions={"canet": "0"},
    data={"nodes": 3},
    both_ways=False,
)


def tensors(start: int) -> dict[str, dict[str, Tensor]]:
    return {
        "weights": {"a": torch.arange(start, start + 6.0).view(2, 3).t(), "b": torch.tensor(True)},
        "reference": {"none": torch.empty(0, 4), "x.shape": torch.tensor([start, 4])},
    }


def saying(start: int) -> ModelFile:
    """The content of model.json for the model with these `tensors`."""
    return replace(FILE, num_features=start)


def write(folder: Path, start: int) -> None:
    write_model(folder, saying(start), tensors(start), "card")
