"""Checkpoints: the last two are kept, and one that does not match its name is rejected."""

from pathlib import Path

import pytest
import torch

from canet.errors import CanetError
from canet.store.checkpoints import (
    read_checkpoint,
    remove_checkpoints,
    save_checkpoint,
    saved_checkpoints,
)


def state(epoch: int) -> dict[str, torch.Tensor]:
    return {"epoch": torch.tensor(epoch), "x": torch.full((3,), float(epoch))}


def test_the_last_two_are_kept_newest_first_until_they_are_removed(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    for epoch in (7, 9, 100):
        save_checkpoint(tmp_path, state(epoch))
    found = [int(read_checkpoint(path)["epoch"]) for path in saved_checkpoints(tmp_path)]
    assert found == [100, 9]
    assert len(list(tmp_path.iterdir())) == 3
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]


def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match="checkpoint-3"):
        read_checkpoint(tmp_path / "checkpoint-3-0123456789abcdef.safetensors")
