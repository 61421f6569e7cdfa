"""A run is a folder that can be trusted.

config.json             task, method, settings and seeds; a digest of the data; canet's version
metrics.json            loss and scores of every epoch
weights.safetensors     parameters at the selected epoch
result.json             scores, selection rule, timing, versions
done                    written last: the SHA-256 of every file of the run
checkpoint-*            everything needed to go on; only while the run is unfinished

Every file of a finished run is compared with its checksum when it is read.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from canet._version import __version__
from canet.data.digest import DataDigest
from canet.errors import CanetError, InputWarning
from canet.store.config import RunConfig
from canet.store.folders import folders_below
from canet.store.kinds import is_score
from canet.store.record import MARKER, Record, alone_with, read_record, write_record
from canet.store.states import remove_states, save_state, saved_states
from canet.store.tensors import damaged, unpack, write_tensors
from canet.util.files import digest_of, write_json

CONFIG, METRICS, RESULT, WEIGHTS = (
    "config.json",
    "metrics.json",
    "result.json",
    "weights.safetensors",
)
OWN = (CONFIG, METRICS, RESULT, WEIGHTS)
"""What a run writes itself; a record that has any of them has them all, but for an archive's."""
DATA, VERSION = "data", "canet"
"""Entries of config.json beside the config: digest of the data, version of this package."""


class RunFolder:
    """Reads and writes one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> bool:
        return (self.path / MARKER).exists()

    @property
    def has_metrics(self) -> bool:
        """Whether its curves are here; most runs of an archive have none."""
        return (self.path / METRICS).exists()

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints of an unfinished run, the newest first."""
        return saved_states(self.path)

    def begin(self, config: RunConfig, data: DataDigest | None = None) -> None:
        """Claim the folder for a run, or check that what lies there is the same run."""
        if (self.path / CONFIG).exists():
            if self.read_config() != config:
                raise CanetError(
                    f"'{self.path}' holds a run with other settings: choose another folder"
                )
            if data is not None:
                self.check_data(data)
            return
        if not config.well_formed:
            raise CanetError(
                "a run of these seeds and settings cannot be kept: seeds are whole numbers from 0 "
                "to below 2**63, settings are numbers, words, true, false or none"
            )
        made_on = {} if data is None else {DATA: data.to_json()}
        try:
            content = asdict(config) | made_on | {VERSION: __version__}
            write_json(self.path / CONFIG, content)
        except OSError as error:
            raise CanetError(
                f"cannot write to '{self.path}' ({error.strerror}): choose another folder"
            ) from None

    def check_data(self, data: DataDigest) -> None:
        """Refuse other data than the run's; a run that does not tell its data is only remarked."""
        content = self._object(CONFIG)
        known = self.read_data()
        if known is None:
            _remark("some runs are older than digests: whether this is their data cannot be told")
            return
        part = known.differs_in(data)
        if part == "last bits":
            _remark("features differ from those of some runs in their last bits, by rounding")
        elif part is not None:
            other = "another graph" if part == "graph" else f"other {part}"
            raise CanetError(
                f"'{self.path}' holds a run on other data ({other}): give the data that it was "
                "trained on, or choose another folder"
            )
        if content.get(VERSION) != __version__:
            _remark(
                f"some runs were begun by canet {content.get(VERSION)}, this is "
                f"{__version__}: what is computed now may differ from them"
            )

    def finish(
        self, weights: Mapping[str, Tensor], metrics: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Write what came of the run, and that it is finished; the first to do so wins."""
        with alone_with(self.path):
            if not self.finished:
                files = {
                    WEIGHTS: write_tensors(self.path / WEIGHTS, weights),
                    METRICS: write_json(self.path / METRICS, metrics),
                    RESULT: write_json(self.path / RESULT, result),
                    CONFIG: digest_of((self.path / CONFIG).read_bytes()),
                }
                write_record(self.path, files)
        remove_states(self.path)

    def add_json(self, name: str, content: Any) -> None:
        """Keep something that was computed from a finished run beside it."""
        self._add(name, write_json(self.path / name, content))

    def add_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep tensors that were computed from a finished run beside it."""
        self._add(name, write_tensors(self.path / name, tensors))

    def read_config(self) -> RunConfig:
        content = self._object(CONFIG)
        try:
            config = RunConfig(**{k: v for k, v in content.items() if k not in (DATA, VERSION)})
        except TypeError:
            raise damaged(self.path / CONFIG) from None
        if not config.well_formed:
            raise damaged(self.path / CONFIG)
        return config

    def read_data(self) -> DataDigest | None:
        """The digest of the data that the run was trained on; None if it does not tell."""
        try:
            content = self._object(CONFIG).get(DATA)
            return None if content is None else DataDigest.from_json(content)
        except (KeyError, TypeError, ValueError):
            raise damaged(self.path / CONFIG) from None

    def read_result(self) -> dict[str, Any]:
        result = self._object(RESULT)
        scores = result.get("scores")
        if not isinstance(scores, dict) or not all(map(is_score, scores.values())):
            raise damaged(self.path / RESULT)
        return result

    def read_metrics(self) -> dict[str, list[float]]:
        metrics = self._object(METRICS)
        if not all(isinstance(curve, list) for curve in metrics.values()):
            raise damaged(self.path / METRICS)
        return metrics

    def read_json(self, name: str) -> Any:
        """The content of one of the run's files."""
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError):
            raise damaged(self.path / name) from None

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one of the run's files."""
        return unpack(self.read_bytes(name), self.path / name)

    def read_bytes(self, name: str) -> bytes:
        """One of the run's files, compared with its checksum if the run is finished."""
        path = self.path / name
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise CanetError(f"'{self.path}' is not a finished run: it has no {name}") from None
        except OSError as error:
            raise CanetError(f"cannot read '{path}' ({error.strerror})") from None
        if self.finished and not self.intact(name, content):
            raise CanetError(
                f"'{path}' is damaged or was changed after the run: put it back, or delete "
                f"'{self.path}' and train the run again"
            )
        return content

    def read_record(self) -> Record | None:
        """Name → SHA-256 of a finished run's files; None where it has no checksums."""
        record = read_record(self.path)
        if record is None and DATA in _read_object(self.path / CONFIG):
            raise damaged(self.path / MARKER)  # a run that tells its data has checksums, too
        return record

    def load_weights(self, module: nn.Module) -> None:
        """Load the selected epoch's parameters into `module`."""
        path = self.path / WEIGHTS
        if not path.exists():
            raise CanetError(f"'{path}' is missing: the run is not finished, or from an archive")
        try:
            module.load_state_dict(self.read_tensors(WEIGHTS))
        except RuntimeError:
            raise CanetError(
                f"'{path}' does not fit the model: load it with the run's own method and settings"
            ) from None

    def save_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        save_state(self.path, tensors)

    def intact(self, name: str, content: bytes) -> bool:
        """Whether a file of a finished run is what the record says, where it says something."""
        record = self.read_record()
        if record is None or (name not in record and name not in OWN):
            return True
        return record.get(name) == digest_of(content)

    def _add(self, name: str, digest: str) -> None:
        """Enter a file into the record, if there is one."""
        with alone_with(self.path):
            record = self.read_record()
            if record is not None:
                write_record(self.path, record | {name: digest})

    def _object(self, name: str) -> dict[str, Any]:
        content = self.read_json(name)
        if not isinstance(content, dict):
            raise damaged(self.path / name)
        return content


def find_runs(path: Path) -> list[RunFolder]:
    """The finished runs at or below `path`, behind links too, in order of their names."""
    found = [RunFolder(f) for f in folders_below(path) if (f / MARKER).is_file()]
    if not found:
        raise CanetError(f"no finished run at '{path}': give the folder that --out named")
    return found


def _read_object(path: Path) -> dict[str, Any]:
    """An object as it lies there; nothing where it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _remark(text: str) -> None:
    """Say something about runs, once in a command."""
    warnings.warn(text, InputWarning, stacklevel=2)
