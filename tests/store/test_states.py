"""Checkpoints: the last two are kept, and one that is not what its name says is refused."""

from pathlib import Path

import pytest
import torch

from canet.errors import CanetError
from canet.store.states import is_state, read_state, remove_states, save_state, saved_states


def state(epoch: int) -> dict[str, torch.Tensor]:
    return {"epoch": torch.tensor(epoch), "x": torch.full((3,), float(epoch))}


def test_the_last_two_states_are_kept_newest_first(tmp_path: Path) -> None:
    for epoch in (7, 9, 100):
        save_state(tmp_path, state(epoch))
    assert [int(read_state(path)["epoch"]) for path in saved_states(tmp_path)] == [100, 9]
    assert len(list(tmp_path.iterdir())) == 2


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    save_state(tmp_path, state(3))
    (path,) = saved_states(tmp_path)
    raw = path.read_bytes()
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        for content in (bytes(changed), raw[:place]):
            path.write_bytes(content)
            with pytest.raises(CanetError, match="is damaged"):
                read_state(path)
    path.unlink()
    with pytest.raises(CanetError, match="cannot be read"):
        read_state(path)


def test_no_state_is_left_when_they_are_removed_those_of_earlier_versions_too(
    tmp_path: Path,
) -> None:
    save_state(tmp_path, state(3))
    (tmp_path / "checkpoint.safetensors").touch()
    (tmp_path / "weights.safetensors").touch()
    assert [is_state(path.name) for path in sorted(tmp_path.iterdir())] == [True, True, False]
    remove_states(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
