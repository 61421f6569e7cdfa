"""A training callback that writes TensorBoard event files."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from canet.errors import CanetError


class TensorBoardLog:
    """Writes loss and validation score of every epoch, one folder per model and seed."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise CanetError(
                "--log needs the package tensorboard: install it with `pip install tensorboard`"
            ) from error
        self._folder, self._new_writer = folder, SummaryWriter
        self._writers: dict[Path, Any] = {}
        atexit.register(self.close)

    def __call__(self, facts: dict[str, Any]) -> None:
        name = facts["model"].replace(" ", "_").replace("/", "_")
        folder = self._folder / name / f"seed-{facts['seed']}"
        if folder not in self._writers:
            self._writers[folder] = self._new_writer(folder, flush_secs=5)
        writer = self._writers[folder]
        for name in ("loss", "valid"):
            writer.add_scalar(name, facts[name], facts["epoch"])
        if facts["epoch"] == facts["epochs"]:
            self.close()

    def close(self) -> None:
        """Write and close all event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
